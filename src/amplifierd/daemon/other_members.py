"""What other members have to say: what happens there, what their sessions do, and what they know of operations."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from amplifierd.cluster.destination import Destination
from amplifierd.exceptions import MemberError

from .callers import Caller
from .carried_caller import carried
from .event_hub import EventHub
from .member_events import MemberEvents
from .states_elsewhere import StatesElsewhere

if TYPE_CHECKING:
    from amplifierd.cluster.cluster import Cluster

logger = logging.getLogger(__name__)

MEMBER = Caller("cluster", "cluster", "admin", via="member")
"""A member that asks for itself."""


class Elsewhere:
    """The other members, for requests about everything."""

    def __init__(self, cluster: Cluster, hub: EventHub) -> None:
        own = carried(MEMBER, "")
        self._cluster = cluster
        self.events = MemberEvents(cluster, hub, own)
        self.states = StatesElsewhere(cluster, own)

    async def ask(self, target: str, caller: Caller | None, address: str) -> dict[Destination, dict[str, Any]]:
        """Return what every other daemon answers to a caller's question; one that cannot answer it is left out."""
        told, others = carried(caller, address), self._cluster.view.daemons(beside=self._cluster.member_id)
        answers = await asyncio.gather(*(self._ask_one(to, target, told) for to in others))
        return {to: answer for to, answer in zip(others, answers, strict=True) if answer is not None}

    async def who_knows(self, target: str, caller: Caller | None, address: str) -> Destination | None:
        """Return the daemon that has an answer to a caller's question."""
        return next(iter(await self.ask(target, caller, address)), None)

    async def _ask_one(self, to: Destination, target: str, caller: str) -> dict[str, Any] | None:
        try:
            return await self._cluster.peers.ask(to, target, caller=caller)
        except MemberError as error:
            logger.debug("%s does not answer %s: %s", to.address, target, error)
            return None

    async def close(self) -> None:
        await self.events.close()
