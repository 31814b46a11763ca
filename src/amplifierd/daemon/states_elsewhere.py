"""What sessions do that other members have at work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amplifierd.cluster.destination import Destination
from amplifierd.cluster.whereabouts import daemon_at
from amplifierd.exceptions import MemberError
from amplifierd.session_store.record import Activity, SessionRecord

if TYPE_CHECKING:
    from amplifierd.cluster.cluster import Cluster

logger = logging.getLogger(__name__)

TARGET = "/api/v1/cluster/states"
_FRESH_S = 0.5


@dataclass(frozen=True)
class StateElsewhere:
    """What a session does at another member, and what it asks."""

    session_id: str
    activity: Activity
    pending_approvals: tuple[Mapping[str, Any], ...] = ()


@dataclass
class _Told:
    at: float
    states: dict[str, StateElsewhere] = field(default_factory=dict)


class StatesElsewhere:
    """Asks other members; what one has said counts for a moment. `caller` is this member, as it is told to them."""

    def __init__(self, cluster: Cluster, caller: str) -> None:
        self._cluster, self._caller = cluster, caller
        self._told: dict[str, _Told] = {}

    async def of(self, records: Collection[SessionRecord]) -> dict[str, StateElsewhere]:
        """Return what those of some sessions do that are elsewhere."""
        roots = {record.root_id for record in records}
        places = await self._cluster.store.places(roots) if roots else {}
        holders = {daemon_at(place, beside=self._cluster.member_id) for place in places.values()}
        known = await self._ask(to for to in holders if to is not None)
        return {record.session_id: known[record.session_id] for record in records if record.session_id in known}

    async def all(self) -> dict[str, StateElsewhere]:
        """Return what all sessions do that are at work elsewhere."""
        return await self._ask(self._cluster.view.daemons(beside=self._cluster.member_id))

    async def _ask(self, members: Iterable[Destination]) -> dict[str, StateElsewhere]:
        told = await asyncio.gather(*map(self._ask_one, members))
        return {session_id: state for states in told for session_id, state in states.items()}

    async def _ask_one(self, to: Destination) -> dict[str, StateElsewhere]:
        told = self._told.get(to.member_id)
        if told is not None and time.monotonic() - told.at < _FRESH_S:
            return told.states
        try:
            answer = await self._cluster.peers.ask(to, TARGET, caller=self._caller)
        except MemberError as error:
            logger.info("what the sessions of %s do is not known: %s", to.address, error)
            return {}
        states = [
            StateElsewhere(one["session_id"], one["activity"], tuple(one["pending_approvals"]))
            for one in answer["states"]
        ]
        self._told[to.member_id] = _Told(time.monotonic(), {state.session_id: state for state in states})
        return self._told[to.member_id].states
