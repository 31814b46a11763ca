"""Requests that nobody would write, made from the OpenAPI document, about things that are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("AMPLIFIER_FUZZ_EXAMPLES", "3"))
IS_LONG = EXAMPLES >= 100

Known = Mapping[str, Sequence[str]]
"""What is there, by the names of the parameters and fields that name it."""


def attack(operation: Any, known: Known, send: Callable[[Any], None], *, examples: int = EXAMPLES) -> str:
    """Send requests to one operation, most about what is known; say which was answered wrongly, empty when none was."""

    @settings(
        max_examples=examples,
        derandomize=not IS_LONG,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), data=st.data())
    def attempt(case: Any, data: st.DataObject) -> None:
        for part in (case.path_parameters, case.query, case.body):
            for name in [name for name in part if name in known] if isinstance(part, dict) else ():
                part[name] = data.draw(st.sampled_from([*known[name], *known[name], part[name]]))
        send(case)

    try:
        attempt()
    except (AssertionError, BaseExceptionGroup) as error:
        return f"{operation.label}: {error!r}"
    return ""
