"""The last lines about a turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from amplifier_cli.render import styled
from amplifier_cli.turn_error import error_lines
from amplifier_cli.turn_view import summary


def ending(done: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is to be said when a turn is over: its error, and what it used."""
    if error := done.get("error"):
        told, *fix = error_lines(error)
        yield "\n".join([styled(told, "red"), *fix])
    how = "" if done.get("status") == "completed" else f"{done.get('status')} · "
    yield styled(f"{how}{summary(done.get('usage') or {})}\n", "dim")
