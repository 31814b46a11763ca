"""Which session lies below which, learnt from events: known for each session, and never computed per event."""

from __future__ import annotations

from .published_event import PublishedEvent


class SessionAncestry:
    """The sessions of the trees that were heard of. A session counts as one of its own ancestors."""

    def __init__(self) -> None:
        self._lines: dict[str, frozenset[str]] = {}
        self._members: dict[str, set[str]] = {}

    def learn(self, event: PublishedEvent) -> None:
        """Note where the session of an event belongs."""
        session_id, root_id = event.session_id, event.root_id
        if session_id is None or root_id is None or session_id in self._lines:
            return
        parent_id = event.envelope().get("parent_id") if session_id != root_id else None
        above = self._lines.get(str(parent_id), frozenset({str(parent_id), root_id})) if parent_id else {root_id}
        self._lines[session_id] = frozenset({session_id, *above})
        self._members.setdefault(root_id, set()).add(session_id)

    def is_within(self, session_id: str | None, ancestor: str) -> bool:
        return session_id is not None and (session_id == ancestor or ancestor in self._lines.get(session_id, ()))

    def forget(self, root_id: str) -> None:
        for session_id in self._members.pop(root_id, ()):
            self._lines.pop(session_id, None)
