"""What is drawn as one line, in full: calls of tools with their results, and thoughts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_system.visible import visible

_MOST = 500


@dataclass
class Detail:
    """A line, and what is behind it."""

    title: str
    parts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for part in self.parts for line in visible(part).splitlines())])


class Details:
    """Numbers what is drawn, from 1; the oldest is forgotten when there is too much."""

    def __init__(self) -> None:
        self._found: dict[int, Detail] = {}
        self.last = 0

    def add(self, title: str, *parts: str) -> int:
        """Keep something and return its number."""
        self.last += 1
        self._found[self.last] = Detail(title, [*parts])
        self._found.pop(self.last - _MOST, None)
        return self.last

    def extend(self, number: int, part: str) -> None:
        if number in self._found:
            self._found[number].parts.append(part)

    def find(self, number: int) -> Detail | None:
        return self._found.get(number)


def input_text(arguments: Any) -> str:
    """Return the input of a call, an argument to a paragraph."""
    if not isinstance(arguments, Mapping):
        return _text(arguments)
    return "\n".join(f"{key}: {_text(value)}" for key, value in arguments.items())


def outcome_text(data: Mapping[str, Any]) -> str:
    """Return what a call returned, or the error that it ended with."""
    result = data.get("result")
    result = result if isinstance(result, Mapping) else {}
    output = result.get("output") if result.get("success", True) else result.get("error")
    return input_text(output if output is not None else data.get("content") or data.get("error"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
