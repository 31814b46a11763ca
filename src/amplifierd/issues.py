"""One rule broken at one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Severity = Literal["error", "warning"]

ON_PROFILE = "bundle-on-profile"
"""The code of the remark that a bundle runs on top of a profile."""


@dataclass(frozen=True, slots=True)
class Issue:
    """What is wrong (`code`, `message`), where (`location` is a key path, `file`, `line`), and how to fix it."""

    code: str
    message: str
    location: str = ""
    file: Path | None = None
    line: int | None = None
    fix: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else str(self.file or "")
        where = ": ".join(part for part in (place, self.location) if part)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text} ({self.fix})" if self.fix else text

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "file": str(self.file) if self.file else None}


def errors(issues: Iterable[Issue]) -> list[Issue]:
    return [issue for issue in issues if issue.severity == "error"]


_NUMBER, _WHOLE, _SWITCH = "must be a number", "must be a whole number", "must be true or false"
_WORDS = {
    "bool_parsing": _SWITCH,
    "bool_type": _SWITCH,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}


def in_words(problem: Mapping[str, Any]) -> str:
    """Return what one entry of `ValidationError.errors()` says, without its place and value."""
    words = _WORDS.get(problem["type"])
    if words is None:
        return str(problem["msg"]).removeprefix("Value error, ")
    return words.format(**problem.get("ctx", {}))
