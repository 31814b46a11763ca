"""What a script asks of a request before a step is used, and what it insists on."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .turn_view import TurnView

_TYPES: dict[str, type] = {
    "contains": str,
    "regex": str,
    "role": str,
    "tool": str,
    "call": int,
    "min_messages": int,
    "tools_include": list,
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that are given must hold; `contains`, `regex`, `role` and `tool` look at the last message."""

    contains: str | None = None
    regex: str | None = None
    role: str | None = None
    tool: str | None = None
    call: int | None = None
    min_messages: int | None = None
    tools_include: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Any, *, allow_tools: bool = False) -> "Conditions":
        """Read a mapping, None meaning no condition; raises `TypeError` or `ValueError`."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise TypeError(f"conditions are a mapping, got {given!r}")
        for key, value in given.items():
            if key not in _TYPES or (key == "tools_include" and not allow_tools):
                raise ValueError(f"there is no condition {key!r}")
            if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
                raise TypeError(f"the condition {key!r} is a {_TYPES[key].__name__}, got {value!r}")
        if "regex" in given:
            try:
                re.compile(given["regex"])
            except re.error as exc:
                raise ValueError(f"{given['regex']!r} is not a regular expression: {exc}") from exc
        return cls(**{**given, "tools_include": tuple(given.get("tools_include", ()))})

    def broken(self, view: TurnView) -> str | None:
        """Return the first condition that does not hold, in words; None when all hold."""
        role = view.last.role if view.last else None
        missing = [name for name in self.tools_include if name not in view.offered]
        checks = (
            (self.contains is None or self.contains in view.last_text, f"contains {self.contains!r}"),
            (self.regex is None or re.search(self.regex, view.last_text), f"regex {self.regex!r}"),
            (self.role is None or self.role == role, f"role {self.role!r}, it is {role!r}"),
            (self.tool is None or self.tool in view.answered_tools, f"tool {self.tool!r}"),
            (self.call is None or self.call == view.call_number, f"call {self.call}, it is {view.call_number}"),
            (
                self.min_messages is None or self.min_messages <= view.message_count,
                f"min_messages {self.min_messages}, there are {view.message_count}",
            ),
            (not missing, f"tools_include {missing!r}, offered are {view.offered!r}"),
        )
        return next((words for holds, words in checks if not holds), None)
