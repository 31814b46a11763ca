"""One answer of a profile, as clients of other servers ask for it: a turn of a session that may live no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import run_to_end
from amplifierd.exceptions import TurnFailedError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.events.published_event import EventFilter, PublishedEvent
from amplifierd.server.events.subscriber import Subscriber
from amplifierd.sessions.layers.client_turns import ClientTurn
from amplifierd.store.record import state_conflict
from amplifierd.workers.live_sessions import SubmittedTurn, TurnRequest

from .daemon import Daemon
from .stale_completions import MARK, TAG

_WATCHED = ("content_block:*", "llm:stream_*")


@dataclass(frozen=True)
class AskedCompletion:
    """What is asked of a profile. `results` are what the client's own tools gave since the last answer."""

    profile: str
    prompt: str
    images: Sequence[Mapping[str, Any]] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    client: ClientTurn = field(default_factory=ClientTurn)
    results: Sequence[tuple[str, str]] = ()
    user: str | None = None


@dataclass(frozen=True)
class Completion:
    """A turn that ended: its text, and the calls that the client is to run."""

    text: str
    calls: Sequence[Mapping[str, Any]]
    usage: Mapping[str, Any]
    finish_reason: str | None


class RunningCompletion:
    """A turn at work: pieces of its text as they come, and what it came to."""

    def __init__(self, daemon: Daemon, session_id: str, turn: SubmittedTurn, watching: Subscriber) -> None:
        self.session_id = session_id
        self._daemon, self._turn, self._watching = daemon, turn, watching
        self._streamed = False

    async def pieces(self, keepalive_s: float) -> AsyncIterator[str]:
        """Yield pieces of the text; an empty one when nothing has come for a while."""
        self._turn.result.add_done_callback(lambda done: self._watching.close())
        while not self._watching.is_done:
            if not await self._watching.news(keepalive_s):
                yield ""
                continue
            for item in self._watching.take():
                if isinstance(item, PublishedEvent) and item.session_id == self.session_id:
                    text = self._text_of(item)
                    if text:
                        yield text

    def _text_of(self, event: PublishedEvent) -> str:
        data = event.envelope().get("data") or {}
        if event.is_delta:
            is_text = data.get("block_type", "text") == "text" and isinstance(data.get("text"), str)
            self._streamed = self._streamed or bool(is_text and data["text"])
            return str(data["text"]) if is_text else ""
        if event.name != "content_block:end":
            return ""
        block, was_streamed = data.get("block") or {}, self._streamed
        self._streamed = False
        return str(block.get("text") or "") if block.get("type") == "text" and not was_streamed else ""

    async def done(self) -> Completion:
        """Return what the turn came to.

        Raises:
            TurnFailedError: it failed; with the problem.
        """
        result = await asyncio.shield(self._turn.result)
        if result["status"] != "completed":
            raise TurnFailedError(result.get("error") or {}, status=result["status"])
        calls = result.get("client_calls") or ()
        text = "" if calls else result["response"]
        return Completion(text, calls, result.get("usage") or {}, result.get("finish_reason"))

    async def cancel(self) -> None:
        """End the turn, unless it has ended."""
        if self._turn.result.done():
            return
        with suppress(AmplifierError):
            await self._daemon.live.cancel(self.session_id, immediate=True)


@asynccontextmanager
async def completing(
    daemon: Daemon, caller: Caller, asked: AskedCompletion, session_id: str | None
) -> AsyncIterator[RunningCompletion]:
    """Run a completion: in a session of its own that ends with it, or in a stored one, which keeps the turn.

    Raises:
        SessionNotFoundError: the caller has no session of that id.
        SessionStateError: it has not been started, or has ended.
        ProfileNotFoundError: there is no such profile.
    """
    if session_id is None:
        async with _own_session(daemon, caller, asked) as own, _submitted(daemon, caller, own, asked) as running:
            try:
                yield running
            finally:
                await run_to_end(running.cancel())
        return
    record = await daemon.access.get(caller, session_id)
    if record.status != "active":
        raise state_conflict(session_id, record.status, "execute")
    results = "\n\n".join(f"[Result of {name}]\n{text}" for name, text in asked.results)
    bound = replace(
        asked, prompt=results or asked.prompt, history=(), client=replace(asked.client, answers=(), results={})
    )
    await daemon.live.load(session_id)
    async with _submitted(daemon, caller, session_id, bound) as running:
        yield running


@asynccontextmanager
async def _submitted(
    daemon: Daemon, caller: Caller, session_id: str, asked: AskedCompletion
) -> AsyncIterator[RunningCompletion]:
    """Run the turn, and watch it as long as the block runs."""
    root_id = (await daemon.home.sessions.runtime.store.read(session_id)).root_id
    watching = daemon.events.watch(session_id, root_id, EventFilter(_WATCHED), children=False, owner=caller.streams_of)
    try:
        metadata = {"user": asked.user} if asked.user else {}
        request = TurnRequest(asked.prompt, metadata=metadata, images=asked.images, client=asked.client)
        turn = await daemon.turns.submit(session_id, request)
        yield RunningCompletion(daemon, session_id, turn, watching)
    finally:
        daemon.events.leave(watching)


@asynccontextmanager
async def _own_session(daemon: Daemon, caller: Caller, asked: AskedCompletion) -> AsyncIterator[str]:
    """Have a session as long as the block runs."""
    record = await daemon.home.sessions.create(
        asked.profile,
        working_dir=caller.roots[0] if caller.roots else None,
        history=asked.history,
        owner=caller.owner,
        limits=caller.limits,
        metadata=dict(MARK),
        tags=(TAG,),
    )
    try:
        await daemon.live.load(record.session_id)
        yield record.session_id
    finally:
        await run_to_end(_remove(daemon, record.session_id))


async def _remove(daemon: Daemon, session_id: str) -> None:
    with suppress(AmplifierError):
        await daemon.live.unload(session_id)
        await daemon.home.sessions.delete(session_id, force=True, forever=True)
