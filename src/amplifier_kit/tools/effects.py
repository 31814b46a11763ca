"""What a tool does to the world: what it says itself, else what its name suggests."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

READ, WRITE, EXECUTE, NETWORK, SPAWN = "read", "write", "execute", "network", "spawn"

ALL_EFFECTS = frozenset({READ, WRITE, EXECUTE, NETWORK, SPAWN})

_WRITES = r"(write|edit|create|delete|remove|move|rename|copy|save|append|patch|apply)(_.*)?|.*_(write|edit)"
_EXECUTES = r"bash|shell|sh|exec(ute)?|run|terminal|python|command|(run|exec(ute)?)_.*|.*_(shell|command|exec)"
_READS = r"(read|list|get|find|search|view|show|count|stat|tail|head|describe)(_.*)?|ls|cat|glob|grep|todo"

_SUGGESTED: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = tuple(
    (re.compile(pattern), frozenset(effects))
    for pattern, effects in (
        (_EXECUTES, ALL_EFFECTS),
        (_WRITES, (READ, WRITE)),
        (r"(download|upload|http|post|send)(_.*)?", (NETWORK, WRITE)),
        (r"(web|fetch|browse|url)(_.*)?", (NETWORK,)),
        (r"task|delegate|agent|spawn|(delegate|spawn)_.*", (SPAWN,)),
        (_READS, (READ,)),
    )
)


def effects_of(tool: Any, tool_name: str, tool_input: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Return the effects of a tool, or of one call of it where the tool tells calls apart.

    A tool declares them as `effects`; `effects_of(input)` may say less of one call. A tool that says nothing has the
    effects that its name suggests, else all of them.
    """
    declared = getattr(tool, "effects", None)
    if type(declared) is not frozenset or not declared <= ALL_EFFECTS:
        declared = _known(declared)
    if declared is None:
        return suggested_effects(tool_name)
    of_call = getattr(tool, "effects_of", None)
    if tool_input is not None and callable(of_call):
        narrower = _known(of_call(tool_input))
        return declared if narrower is None else declared & narrower
    return declared


@lru_cache(maxsize=1024)
def suggested_effects(tool_name: str) -> frozenset[str]:
    """Return what the name of a tool suggests about it, everything where it suggests nothing."""
    name = tool_name.lower().replace("-", "_")
    return next((effects for pattern, effects in _SUGGESTED if pattern.fullmatch(name)), ALL_EFFECTS)


def _known(value: Any) -> frozenset[str] | None:
    if isinstance(value, str) or not isinstance(value, Collection) or not ALL_EFFECTS.issuperset(value):
        return None
    return frozenset(value)
