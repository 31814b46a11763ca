"""The keyword rule: a prompt with a certain word gets one tool call, so that a plain plan shows a tool at work."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_kit.lenient_config import LenientConfig

from .entries import Entry, EntryCall
from .turn_view import TurnView
from .usage import FIXED_CALL

_CALL_ID = "mock_tool_1"
_PATH = re.compile(r"[^\s`'\"]*[\w~][./][\w~./-]+|~?/[^\s`'\"]+")


@dataclass(frozen=True, slots=True)
class KeywordRule:
    """Calls `tool` when the prompt matches `pattern`."""

    pattern: re.Pattern[str] = re.compile(r"\bread\b", re.IGNORECASE)
    tool: str = "read"
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"path": "test.txt"})

    @classmethod
    def read(cls, config: LenientConfig, *, is_off: bool) -> "KeywordRule | None":
        """Read the key `tool_trigger`; what is left out of it is the default's."""
        given = config.mapping("tool_trigger", {})
        default = cls()
        if is_off:
            return None
        pattern, tool, arguments = given.get("pattern"), given.get("tool"), given.get("arguments")
        try:
            return cls(
                default.pattern if pattern is None else re.compile(pattern, re.IGNORECASE),
                default.tool if tool is None else str(tool),
                dict(default.arguments if arguments is None else arguments),
            )
        except (re.error, TypeError, ValueError):
            return config.refuse("tool_trigger", given, "a mapping of pattern, tool and arguments", default)

    def entry(self, view: TurnView) -> Entry | None:
        """Return the call, None when the rule does not apply."""
        if not view.is_first_call or not self.pattern.search(view.first_user_text):
            return None
        names = (self.tool, f"{self.tool}_file")
        name = next((name for name in names if name in view.offered), None) if view.offered else self.tool
        if name is None:
            return None
        arguments = dict(self.arguments)
        if name == "read_file":
            found = _PATH.search(view.first_user_text)
            arguments = {"file_path": found[0].rstrip(".,") if found else "test.txt"}
        call = EntryCall(name, arguments, _CALL_ID)
        usage = FIXED_CALL.model_dump(exclude_none=True)
        return Entry(text=f"I will use {name}.", tool_calls=(call,), usage=usage, streams=False)
