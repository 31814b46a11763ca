"""What one member shows another of everything that happens to its sessions, for those who watch all of them there."""

from __future__ import annotations

from .event_filter import EventFilter
from .event_hub import EventHub
from .event_view import EventView
from .event_watch import Batch, GlobalWatch
from .published_event import PublishedEvent


class MemberWatch(GlobalWatch):
    """The events of this daemon's own sessions and of the work that it was asked for, and who may see them."""

    def __init__(self, hub: EventHub, view: EventView, after: str | None) -> None:
        super().__init__(hub, EventFilter(), view, after=after)

    def frame(self, event: PublishedEvent) -> bytes:
        frame = super().frame(event)
        return frame if event.owners is None else b"owners: %b\n%b" % (",".join(sorted(event.owners)).encode(), frame)

    async def _visible(self, events: Batch) -> Batch:
        return [event for event in events if is_for_members(event)]


def is_for_members(event: PublishedEvent) -> bool:
    """Say whether other members pass an event on: one of a session or of an operation, and nothing else."""
    if event.is_relayed:
        return False
    return event.root_id is not None or event.owners is not None or event.name.startswith("stream:")
