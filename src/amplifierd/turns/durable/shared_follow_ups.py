"""What is to follow interrupted turns, where every member of a cluster finds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amplifierd.session_store.postgres.store import PostgresStore
from amplifierd.sessions.interrupted_turns import InterruptedTurn
from amplifierd.turns.follow_ups import has_follow_up

_KIND = "follow_up"


class SharedFollowUps:
    """Implements `FollowUps` over a store that several daemons share."""

    def __init__(self, store: PostgresStore) -> None:
        self._shared, self._members = store.shared, store.members
        self._kept: dict[InterruptedTurn, dict[str, Any]] = {}

    async def keep(self, interrupted: Sequence[InterruptedTurn]) -> None:
        for one in filter(has_follow_up, interrupted):
            value = {"turn": one.turn, "action": one.action, "correlation_id": one.correlation_id}
            self._kept[one] = {**value, "member_id": self._members.own_id}
            await self._shared.put(_KIND, one.session_id, self._kept[one])

    async def left(self) -> Sequence[InterruptedTurn]:
        if not (kept := await self._shared.list(_KIND)):
            return ()
        others = {one.member_id for one in await self._members.list() if one.is_live} - {self._members.own_id}
        left = {
            InterruptedTurn(session_id, value["turn"], value["action"], value["correlation_id"]): value
            for session_id, value in kept.items()
            if value["member_id"] not in others
        }
        self._kept |= left
        return tuple(left)

    async def drop(self, interrupted: InterruptedTurn) -> None:
        """Remove what was kept here, or found; what another member has kept meanwhile stays."""
        if (value := self._kept.pop(interrupted, None)) is not None:
            await self._shared.delete(_KIND, interrupted.session_id, value)
