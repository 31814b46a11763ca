"""What is never masked: identifiers, dates and costs that look like ones, and the paths of an allowlist."""

import re
from collections.abc import Iterable
from typing import Any

IDENTIFIER_KEYS = frozenset(
    {
        "session_id",
        "parent_id",
        "parent",
        "parent_session_id",
        "sub_session_id",
        "tool_call_id",
        "parallel_group_id",
        "request_id",
        "span_id",
        "parent_span_id",
        "turn_id",
        "step_id",
    }
)
DEFAULT_ALLOWLIST = frozenset(
    {
        "session_id",
        "parent_id",
        "parent",
        "timestamp",
        "lvl",
        "level",
        "tool_name",
        "provider",
        "orchestrator",
        "status",
        "type",
        "ts",
        "seq",
        "turn_id",
        "span_id",
        "parent_span_id",
        "model",
        "usage.cost_usd",
        "working_dir",
    }
)

_TIME = r"[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
_DATE = re.compile(rf"\d{{4}}-\d\d-\d\d(?:{_TIME})?|\d{{9,10}}(?:\.\d{{1,9}})?|\d{{13}}|\d{{16}}|\d{{19}}", re.ASCII)
_COST = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SHAPES = dict.fromkeys(("timestamp", "ts", "started_at", "ended_at", "created_at"), _DATE) | {"cost_usd": _COST}
_PATH_STEP = re.compile(r"\.|(?=\[)")


def shape_of(key: Any) -> re.Pattern[str] | None:
    """Return what the texts of a key should look like, whatever an allowlist says; None for most keys."""
    return _SHAPES.get(key)


class Allowlist:
    """Exact paths (`a.b`, `a[0]`), each of which exempts everything below it."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._on_the_way = {
            path[: step.start()] for path in self._paths for step in _PATH_STEP.finditer(path) if step.start()
        }

    def exempts(self, path: str | None) -> bool:
        return path in self._paths

    def narrowed(self, path: str | None) -> str | None:
        """Return the path when it leads to an exempt one, else None: below it no path needs to be known."""
        return path if path in self._on_the_way else None
