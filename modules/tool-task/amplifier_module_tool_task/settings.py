"""The configuration: what a child session gets of its parent's, how deep delegation goes, and how much at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_kit.lenient_config import LenientConfig

MODULE_ID = "tool-task"
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class TaskSettings:
    exclude_tools: list[str]
    inherit_tools: list[str] | None
    exclude_hooks: list[str]
    inherit_hooks: list[str] | None
    max_recursion_depth: int
    timeout_s: float | None
    max_concurrent: int | None
    max_context_chars: int

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "TaskSettings":
        """Read the configuration; of what cannot be read as an allow-list, nothing is allowed."""
        config = LenientConfig(MODULE_ID, given)
        settings = cls(
            exclude_tools=config.strings("exclude_tools", []),
            inherit_tools=config.strings("inherit_tools", [] if config.is_set("inherit_tools") else None),
            exclude_hooks=config.strings("exclude_hooks", []),
            inherit_hooks=config.strings("inherit_hooks", [] if config.is_set("inherit_hooks") else None),
            max_recursion_depth=config.integer("max_recursion_depth", 1, minimum=UNLIMITED),
            timeout_s=config.number("timeout", None, above=0),
            max_concurrent=config.integer("max_concurrent", None, minimum=1),
            max_context_chars=config.integer("max_context_chars", 2000, minimum=1),
        )
        config.warn_unknown()
        return settings

    def allows_child_of(self, depth: int) -> bool:
        """Say whether a session this deep may have children."""
        return self.max_recursion_depth == UNLIMITED or depth < self.max_recursion_depth

    @property
    def tool_inheritance(self) -> dict[str, list[str]]:
        return _inheritance("tools", self.exclude_tools, self.inherit_tools)

    @property
    def hook_inheritance(self) -> dict[str, list[str]]:
        return _inheritance("hooks", self.exclude_hooks, self.inherit_hooks)


def _inheritance(what: str, excluded: list[str], inherited: list[str] | None) -> dict[str, list[str]]:
    """Return what the application is told about modules of one kind; an exclusion wins."""
    if excluded:
        return {f"exclude_{what}": list(excluded)}
    return {} if inherited is None else {f"inherit_{what}": list(inherited)}
