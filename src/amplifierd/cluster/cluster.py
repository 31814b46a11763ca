"""This daemon as one of several that share a store: who the others are, and who answers for which session."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx2

from amplifier_system.tasks import beat, cancelled
from amplifierd.exceptions import (
    MemberFencedError,
    NotReadyError,
    SessionNotFoundError,
    SettingsError,
    StoreUnavailableError,
)

from .channel import Channels
from .cluster_token import token_check
from .destination import Destination
from .member_choice import MemberView, choose, eligible
from .peers import Peers
from .session_locations import SessionLocations, daemon_at
from .takeover import TakeOver, Takeover

if TYPE_CHECKING:
    from amplifierd.store.postgres.store import PostgresStore

logger = logging.getLogger(__name__)

_TELL_S = 2.0
_AGAIN_S = 1.0
_UNFIT_S = 30.0
"""A member whose loops have failed for so long gives up its lease, and the others do its work."""
_STALLS_S = 30.0
"""A loop that stands still for so long counts as failing. The lease has no such limit: it runs out by itself."""

_ROOTS_KNOWN = 10_000
_SLACK = 2.0
"""How many turns more than another member this one may run before it sends sessions there."""
_CHECK = ("cluster", "token-check")
_CLAIM = "claim"

Load = Callable[[], Mapping[str, Any]]
"""Says how busy this daemon is."""


class Cluster:
    """The members of a store as this daemon sees them. `address` is where the others reach it, None if they cannot.

    `take_over` makes a session whole that a dead member left; `on_fenced` is called when the others have shut this
    daemon out, which joins again then. `transport` carries what is sent to the others, if not HTTP does.
    """

    def __init__(
        self,
        store: PostgresStore,
        token: bytes,
        *,
        address: str | None,
        labels: Mapping[str, Any],
        load: Load,
        take_over: TakeOver,
        on_fenced: Callable[[], Awaitable[None]],
        tls: ssl.SSLContext | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.store, self.address = store, address
        self._token, self._labels, self._load = token, labels, load
        self._tls, self._transport = tls, transport
        self._on_fenced = on_fenced
        self.member_id = ""
        self.channels = Channels(token, "")
        self.peers = Peers(token, "", tls=tls, transport=transport)
        self.view = MemberView(store.members.list)
        self.locations = SessionLocations(store.places)
        self.takeover = Takeover(store, self.view, take_over)
        self.is_out = False
        self._roots: OrderedDict[str, str] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Join the others.

        Raises:
            SettingsError: they have another token.
            StoreUnavailableError: the store cannot be reached.
        """
        check = token_check(self._token)
        if await self.store.shared.put_if_absent(*_CHECK, check) not in (None, check):
            raise SettingsError(
                "this home's cluster token differs from that of the other daemons on this store",
                hint="copy config/cluster_token from a machine of the cluster, then start again",
            )
        loop = asyncio.get_running_loop()
        self.store.members.on_fenced = lambda: _call_soon(loop, self._begin_again)
        await self._join()
        await self.view.look()
        subscribe = self.store.notifications.subscribe
        self._unsubscribe.append(subscribe("amplifier_holds", lambda word: self.locations.wake()))
        self.store.members.is_fit = self._is_fit
        start = self.store.supervisor.start
        self._tasks = [
            start("session places", self.locations.run, stalls_after_s=_STALLS_S),
            start("takeover", self.takeover.run, stalls_after_s=_STALLS_S),
            start("load report", self._tell, stalls_after_s=_STALLS_S),
        ]

    def _is_fit(self) -> bool:
        """True while the loops by which this member works do their work."""
        return self.store.supervisor.failing_for_s() < _UNFIT_S

    async def _join(self) -> None:
        before, self.member_id = self.peers, await self.store.members.join(address=self.address, labels=self._labels)
        self.channels = Channels(self._token, self.member_id)
        self.peers = Peers(self._token, self.member_id, tls=self._tls, transport=self._transport)
        await before.close()
        logger.info("joined the cluster as %s, reached at %s", self.member_id, self.address)

    def _begin_again(self) -> None:
        self._tasks.append(self.store.supervisor.start("joining again", self._come_back))

    async def _come_back(self) -> None:
        """Give up what the others took, and be a member again as soon as the store is there."""
        await self._on_fenced()
        while not self.is_out:
            if not self._is_fit():
                await asyncio.sleep(_AGAIN_S)
                continue
            try:
                await self._join()
            except StoreUnavailableError as error:
                logger.warning("the cluster is not joined again yet: %s", error)
                await asyncio.sleep(_AGAIN_S)
                continue
            if self.is_out:  # it was to take on nothing any more while it joined
                await self.store.members.leave()
            return

    async def _tell(self) -> None:
        """Say how busy this daemon is, and let go of the ways to members that are gone."""
        while True:
            beat()
            await asyncio.sleep(_TELL_S)
            self.peers.keep(member.member_id for member in self.view.known if member.is_live)
            try:
                await self.store.members.renew(self._load())
            except (StoreUnavailableError, MemberFencedError) as error:
                logger.debug("the load of this daemon was not reported: %s", error)

    async def set_draining(self, *, within_s: float | None = None) -> None:
        """Take no further sessions: those that are not held go to the others, which are told so.

        Raises:
            StoreUnavailableError: they cannot be told, or not within a time.
        """
        self.is_out, self.takeover.is_active = True, False
        await self.store.members.set_state(self.member_id, "draining", within_s=within_s)
        await self.view.look()

    async def leave(self) -> None:
        """Stop being a member, and from now on only pass on what is asked."""
        await self.store.members.leave()
        await self.view.look()

    async def end(self) -> None:
        """Stop being a member: other members may have its sessions, and clients watch them there."""
        self.locations.close()
        await self.store.members.leave()

    async def close(self) -> None:
        """Let go of the other members, once nothing is passed on to them any more."""
        for end in self._unsubscribe:
            end()
        await cancelled(*self._tasks)
        await self.peers.close()

    # --- who answers

    async def destination(self, session_id: str, *, loads: bool) -> Destination | None:
        """Return the daemon that answers for a session, None if it is this one; `loads` if its modules are needed."""
        try:
            root_id = await self._root_of(session_id)
        except SessionNotFoundError:
            return None
        place = await self.locations.find(root_id)
        if place.member_id is not None and not place.is_live and not self.is_out:
            await self.takeover.take(root_id, place.epoch)
            place = await self.locations.find(root_id)
        if place.is_live:
            return daemon_at(place, beside=self.member_id)
        if self.is_out or loads:
            return await self._placed(session_id) if loads else self.another()
        return None

    def another(self) -> Destination:
        """Return another daemon that takes on new work, the one with the least to do.

        Raises:
            NotReadyError: there is none.
        """
        active = [member for member in self.view.known if member.is_live and member.state == "active"]
        for member in sorted(active, key=lambda member: _turns(member.load)):
            if member.address is not None and member.member_id != self.member_id:
                return Destination(member.member_id, member.address)
        raise NotReadyError("this daemon takes no new work, and there is no other one", hint="start another one")

    async def _placed(self, session_id: str) -> Destination | None:
        """Return the daemon that should load a session that is not held; this one, unless others have less to do.

        Raises:
            NowhereToRunError: no machine has its working directory.
        """
        record = await self.store.read(session_id)
        reachable = [member for member in self.view.known if member.address or member.member_id == self.member_id]
        best = choose(record, reachable)
        is_able = self.member_id in {member.member_id for member in eligible(record, reachable).members}
        if best.address is None or (is_able and _turns(self._load()) <= _turns(best.load) + _SLACK):
            return None
        return Destination(best.member_id, best.address) if best.member_id != self.member_id else None

    async def claim(self, what: str, for_s: float) -> bool:
        """Be the member that does something which one of them has to do in a time."""
        there = await self.store.shared.put_if_absent(_CLAIM, what, self.member_id, expires_in_s=for_s)
        return there in (None, self.member_id)

    async def lost(self, to: Destination) -> None:
        """Wait until a member cannot answer any more."""
        await self.view.gone(to.member_id)

    async def _root_of(self, session_id: str) -> str:
        if session_id not in self._roots:
            self._roots[session_id] = (await self.store.read(session_id)).root_id
            if len(self._roots) > _ROOTS_KNOWN:
                self._roots.popitem(last=False)
        return self._roots[session_id]


def _turns(load: Mapping[str, Any]) -> float:
    return float(load.get("turns") or 0)


def _call_soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(work)
