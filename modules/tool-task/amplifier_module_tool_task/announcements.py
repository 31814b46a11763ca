"""The events of delegations: their names, their declaration, and how they reach their listeners."""

import asyncio
from typing import Any

from amplifier_core.boundary import emit_quietly
from amplifier_kit.mounting import contribute_events, find_capability, find_mounted, offer_capability

from .settings import MODULE_ID

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
