"""What the stored sessions of a tree say about it: how far its events are numbered, and what it used."""

from __future__ import annotations

from amplifierd.session_store.protocol import SessionStore

from .tree_events import UNSTORED
from .uncounted import counted_until, is_in_turn, used_in
from .usage import Usage


async def last_sequence(store: SessionStore, root_id: str) -> int:
    """Return the number of the last event of a tree; after a crash, one that no event can have had."""
    last, _ = await tree_history(store, root_id)
    return last


async def tree_history(store: SessionStore, root_id: str) -> tuple[int, Usage]:
    """Return the number of the last event of a tree, and what the whole tree used."""
    last, used = 0, Usage()
    for session_id in (root_id, *await store.descendants(root_id)):
        member, last_seq = await store.read(session_id), await store.last_seq(session_id)
        uncounted = await store.read_events(session_id, after_seq=counted_until(member, last_seq))
        last = max(last, last_seq + (UNSTORED if is_in_turn(uncounted) else 0))
        agent = member.agent_name if member.created_by == "agent" else None
        used += (Usage.from_json(member.usage) + used_in(uncounted)).for_agent(agent)
    return last, used
