"""The configuration: what a child session gets of its parent's, how deep delegation goes, and how much at once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core.boundary import emit_quietly
from amplifier_kit.config import LenientConfig
from amplifier_kit.mounting import contribute_events, find_capability, find_mounted, offer_capability

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
        """Say whether a session this deep may have children."""
        return self.max_recursion_depth == UNLIMITED or depth < self.max_recursion_depth


# The events of delegations: their names, their declaration, and how they reach their listeners.


SPAWNED = "task:agent_spawned"
RESUMED = "task:agent_resumed"
COMPLETED = "task:agent_completed"
TIMED_OUT = "task:agent_timeout"
CANCELLED = "task:agent_cancelled"

EVENTS = (SPAWNED, RESUMED, COMPLETED, TIMED_OUT, CANCELLED)

Event = tuple[str, dict[str, Any]]


def declare_events(coordinator: Any) -> None:
    """Make the events known: in the contribution channel, and in the list of the older capability."""
    contribute_events(coordinator, MODULE_ID, EVENTS)
    known = find_capability(coordinator, "observability.events") or []
    if isinstance(known, list | tuple):  # anything else is not ours to replace
        extended = [*known, *(name for name in EVENTS if name not in known)]
        offer_capability(coordinator, "observability.events", extended)


class Announcer:
    """Tells the session's hooks; an event sink that fails changes nothing for the caller."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._running: set[asyncio.Task[None]] = set()

    @property
    def hooks(self) -> Any:
        """The session's registry."""
        mounted = find_mounted(self._coordinator, "hooks")
        return mounted if mounted is not None else getattr(self._coordinator, "hooks", None)

    async def tell(self, event: str, data: dict[str, Any]) -> None:
        """Emit one event."""
        await emit_quietly(self.hooks, event, data)

    async def tell_surely(self, *events: Event) -> None:
        """Emit events in order; all of them are emitted even if the caller is cancelled meanwhile."""
        task = asyncio.create_task(self._tell_all(events))
        self._running.add(task)  # the event loop itself would forget it
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _tell_all(self, events: tuple[Event, ...]) -> None:
        for event, data in events:
            await self.tell(event, data)
