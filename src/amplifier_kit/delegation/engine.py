"""One delegation, from its first event to its last: it ends with a result, a failure, a time-out or a cancellation."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.boundary import emit_quietly
from amplifier_core.exceptions import describe
from amplifier_kit.mounting import contribute_events, find_capability, find_mounted, offer_capability, session_id_of
from amplifier_kit.tools.input import ToolFailure
from amplifier_system.tasks import start_task

LIMITS = "delegation.limits"
"""The capability by which the sessions of a tree share their limits: a child finds that of its parent."""

Event = tuple[str, dict[str, Any]]
Outcome = tuple[ToolResult, Sequence[Event]]

logger = logging.getLogger(__name__)

_FACTS = ("status", "turn_count", "metadata")


@dataclass(frozen=True, kw_only=True)
class Delegation(ABC):
    """What is done in another session: `work` does it. A face says what is told about it and what the model reads."""

    sub_session_id: str
    parent_session_id: str | None
    work: Callable[[], Awaitable[Any]]
    agent: str | None = None
    timeout_s: float | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What every event about the delegation carries."""
        agent = {} if self.agent is None else {"agent": self.agent}
        return {**agent, "sub_session_id": self.sub_session_id, "parent_session_id": self.parent_session_id}

    @abstractmethod
    def started(self) -> Event:
        """Return the event before it starts."""

    @abstractmethod
    def done(self, returned: Any) -> Outcome:
        """Return the result for what the child returned, and the last events. Raises where that is no answer."""

    @abstractmethod
    def cancelled(self) -> Sequence[Event]:
        """Return the last events of one that was cancelled."""

    @abstractmethod
    async def failed(self, error: Exception) -> Outcome:
        """Return the result of one that raised, and the last events."""

    @abstractmethod
    async def timed_out(self) -> Outcome:
        """Return the result of one that took longer than `timeout_s`, and the last events."""

    def answer(self, returned: Any) -> dict[str, Any]:
        """Return what the model is told about the child's answer, whichever face asks."""
        if not isinstance(returned, Mapping) or returned.get("output") is None:
            raise ValueError("the child session returned no output")
        session_id = returned.get("session_id")
        output = {
            "response": returned["output"],
            "session_id": session_id if session_id and isinstance(session_id, str) else self.sub_session_id,
        }
        if self.agent is not None:
            output["agent"] = self.agent
        return output | {key: returned[key] for key in _FACTS if returned.get(key) is not None}


@dataclass(eq=False)
class TreeLimits:
    """How much may be delegated in a tree of sessions: at once, in all, and how deep.

    A session that waits for its children gives up its place meanwhile, so that no chain of waiting sessions keeps all
    the places; None stands for no limit.
    """

    max_concurrent: int | None = None
    max_total: int | None = None
    max_depth: int | None = None
    started: int = 0
    _depths: dict[str, int] = field(default_factory=dict)
    _taken: int = 0
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    _has_place: set[str] = field(default_factory=set)
    _paused: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, coordinator: Any, **own: int | None) -> "TreeLimits":
        """Return the limits of a session's tree, narrowed by these; those of a root are made here."""
        limits = find_capability(coordinator, LIMITS)
        if not isinstance(limits, cls):
            limits = cls()
            offer_capability(coordinator, LIMITS, limits)
        for name, value in own.items():
            known = getattr(limits, name)
            if value is not None and (known is None or value < known):
                setattr(limits, name, value)
        return limits

    def check_depth(self, coordinator: Any, hops: int = 0) -> None:
        """Raise `ToolFailure` if a session lies too deep to have children."""
        depth = max(self._depths.get(session_id_of(coordinator) or "", 0), hops)
        if self.max_depth is not None and depth >= self.max_depth:
            raise ToolFailure(
                f"Delegation depth exceeded: {depth} delegations lie above this session, the limit is "
                f"{self.max_depth}; do the task yourself",
                "DELEGATION_DEPTH_EXCEEDED",
            )

    def count(self, parent_id: str | None, child_id: str) -> None:
        """Count a delegation that is about to start; raises `ToolFailure` if there were enough of them."""
        if self.max_total is not None and self.started >= self.max_total:
            raise ToolFailure(
                f"Delegation limit reached: {self.started} agents were started in this tree of sessions; do the task "
                "yourself",
                "DELEGATION_TOTAL_EXCEEDED",
            )
        self.started += 1
        self._depths[child_id] = self._depths.get(parent_id or "", 0) + 1

    @asynccontextmanager
    async def place(self, parent_id: str | None, child_id: str) -> AsyncIterator[None]:
        """Wait for a place and keep it for a child while it works; its parent's is free meanwhile."""
        self._pause(parent_id)
        try:
            await self._take(child_id)
            try:
                yield
            finally:
                self._give(child_id)
        except BaseException:  # the parent is cancelled, or told: it goes on without waiting
            self._unpause(parent_id)
            raise
        if self._unpause(parent_id):
            await self._take(parent_id or "")

    def _pause(self, session_id: str | None) -> None:
        if session_id in self._paused:
            self._paused[session_id] += 1
        elif session_id is not None and session_id in self._has_place:
            self._paused[session_id] = 1
            self._give(session_id)

    def _unpause(self, session_id: str | None) -> bool:
        """True if the last of a session's children is done, so that it takes a place again."""
        if session_id is None or session_id not in self._paused:
            return False
        self._paused[session_id] -= 1
        if self._paused[session_id]:
            return False
        del self._paused[session_id]
        return True

    async def _take(self, session_id: str) -> None:
        while self.max_concurrent is not None and self._taken >= self.max_concurrent:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()  # it was woken, and will not use it
                raise
        self._taken += 1
        self._has_place.add(session_id)

    def _give(self, session_id: str) -> None:
        if session_id in self._has_place:
            self._has_place.discard(session_id)
            self._taken -= 1
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class Delegations:
    """Runs the delegations of one session, as many at a time as its tree allows."""

    def __init__(self, coordinator: Any, limits: TreeLimits) -> None:
        self._announcer = Announcer(coordinator)
        self._limits = limits

    async def run(self, delegation: Delegation) -> ToolResult:
        """Run a delegation when there is a place for it; the time for it starts then."""
        async with self._limits.place(delegation.parent_session_id, delegation.sub_session_id):
            return await self._run(delegation)

    async def _run(self, delegation: Delegation) -> ToolResult:
        limit = asyncio.timeout(delegation.timeout_s)
        try:
            await self._announcer.tell(*delegation.started())
            async with limit:
                returned = await delegation.work()
            result, events = delegation.done(returned)
        except asyncio.CancelledError:
            await self._announcer.tell_surely(*delegation.cancelled())
            raise
        except Exception as exc:
            is_late = limit.expired()
            result, events = await (delegation.timed_out() if is_late else delegation.failed(exc))
            if not is_late and (result.error or {}).get("code") == "delegation_failed":
                logger.exception("the delegation to session %s failed", delegation.sub_session_id)
        await self._announcer.tell_surely(*events)
        return result


class Announcer:
    """Announces to the session's hooks; an event sink that fails changes nothing for the caller."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

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
        await asyncio.shield(start_task(self._tell_all(events)))

    async def _tell_all(self, events: tuple[Event, ...]) -> None:
        for event, data in events:
            await self.tell(event, data)


def declare_events(coordinator: Any, module_id: str, events: Sequence[str]) -> None:
    """Make events known: in the contribution channel, and in the list of the older capability."""
    contribute_events(coordinator, module_id, events)
    known = find_capability(coordinator, "observability.events") or []
    if isinstance(known, list | tuple):  # anything else is not ours to replace
        extended = [*known, *(name for name in events if name not in known)]
        offer_capability(coordinator, "observability.events", extended)


def text_of_error(error: Exception) -> str:
    return describe(error) or type(error).__name__
