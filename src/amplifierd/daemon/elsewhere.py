"""What other members have to say: what happens there, what their sessions do, and what they know of somebody's work."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

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
    """The other members, for whoever is asked about everything."""

    def __init__(self, cluster: Cluster, hub: EventHub) -> None:
        own = carried(MEMBER, "")
        self._cluster = cluster
        self.events = MemberEvents(cluster, hub, own)
        self.states = StatesElsewhere(cluster, own)

    async def ask(self, target: str, caller: Caller, address: str) -> list[dict[str, Any]]:
        """Return what every other daemon answers to somebody's question; one that cannot be asked is left out."""
        told = carried(caller, address)

        async def ask_one(to: Any) -> dict[str, Any] | None:
            try:
                return await self._cluster.peers.ask(to, target, caller=told)
            except MemberError as error:
                logger.info("%s was not asked for %s: %s", to.address, target, error)
                return None

        others = self._cluster.view.daemons(beside=self._cluster.member_id)
        return [answer for answer in await asyncio.gather(*map(ask_one, others)) if answer is not None]

    async def close(self) -> None:
        await self.events.close()
