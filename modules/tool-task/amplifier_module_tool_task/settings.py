"""The configuration: what a child session gets of its parent's, how deep delegation goes, and how much at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_kit.config import LenientConfig

MODULE_ID = "tool-task"
UNLIMITED = -1

_EVERYTHING = ["*"]  # what an invalid list excludes: then nothing is inherited


def _inheritance(what: str, excluded: list[str], inherited: list[str] | None) -> dict[str, list[str]]:
    """Return what the application is told about modules of one kind: an exclusion wins, empty means all of them."""
    if excluded is _EVERYTHING:
        return {f"inherit_{what}": []}
    if excluded:
        return {f"exclude_{what}": excluded}
    return {} if inherited is None else {f"inherit_{what}": inherited}


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`tool_inheritance` and `hook_inheritance` are what a child session is told to take from its parent."""

    tool_inheritance: dict[str, list[str]]
    hook_inheritance: dict[str, list[str]]
    max_recursion_depth: int
    timeout_s: float | None
    max_concurrent: int | None
    max_context_chars: int

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "TaskSettings":
        config = LenientConfig(MODULE_ID, given)
        settings = cls(
            tool_inheritance=_inheritance(
                "tools",
                config.strings("exclude_tools", [], takes_one=True, when_unusable=_EVERYTHING),
                config.strings("inherit_tools", None, when_unusable=[]),
            ),
            hook_inheritance=_inheritance(
                "hooks",
                config.strings("exclude_hooks", [], takes_one=True, when_unusable=_EVERYTHING),
                config.strings("inherit_hooks", None, when_unusable=[]),
            ),
            max_recursion_depth=config.integer("max_recursion_depth", 1, minimum=UNLIMITED),
            timeout_s=config.number("timeout", None, above=0),
            max_concurrent=config.integer("max_concurrent", None, minimum=1, when_unusable=1),
            max_context_chars=config.integer("max_context_chars", 2000, minimum=1),
        )
        config.warn_unknown()
        return settings

    def allows_child_of(self, depth: int) -> bool:
        """True if a session this deep may have children."""
        return self.max_recursion_depth == UNLIMITED or depth < self.max_recursion_depth
