"""One worker process, as the daemon sees it: how it is started, asked, watched and ended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

from amplifier_system.processes import ProcessTree
from amplifier_system.tasks import start_task
from amplifierd.exceptions import NotReadyError
from amplifierd.live_sessions import WorkerState
from amplifierd.session_store.record import now

from .home_description import DescribeHome
from .json_rpc import Hear, Peer, PeerGoneError
from .worker_output import WorkerOutput
from .worker_start import WorkerStart

logger = logging.getLogger(__name__)

BLOCKED_S = 2.0
"""After how long without a sign of life a worker counts as blocked."""

_BEGINNINGS = 2
"""How many turns a worker is given that it has not taken on yet: the events of some are told before others begin."""

_LOOK_S = 0.1
_OPEN_S = 60.0
_STOP_S = 30.0


class WorkerBlockedError(NotReadyError):
    """A module keeps the event loop of the worker, which therefore hears nothing."""


class WorkerProcess:
    """A running worker. `serves` is what its sessions run."""

    def __init__(self, tree: ProcessTree, serves: str) -> None:
        self.worker_id, self.pid, self.serves = f"worker_{tree.pid}", tree.pid, serves
        self.sessions: set[str] = set()
        self.turns: set[str] = set()
        self.loading = 0
        self.taking_on = asyncio.Semaphore(_BEGINNINGS)
        self.is_retiring = self.is_stopping = self.is_over = False
        self.idle_since = self.used_at = self._beat_at = time.monotonic()
        self.rss_bytes, self.lag_ms = 0, 0.0
        self._tree, self._started_at = tree, now()
        self._peer = Peer()
        self._output: WorkerOutput | None = None
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        describe_home: DescribeHome,
        serves: str,
        processes: WorkerStart,
        hears: Callable[[], Mapping[str, Hear]],
        at_end: Callable[[WorkerProcess], None],
    ) -> WorkerProcess:
        """Start a worker, and wait until it has opened its home.

        `hears` returns what takes the worker's notifications; `at_end` is called once, when it has ended by itself.
        """
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        async with AsyncExitStack() as undo:
            undo.callback(ours.close)
            with theirs, os.fdopen(reading, "rb", buffering=0) as their_output, os.fdopen(writing, "wb") as output:
                tree = await processes.start(theirs.fileno(), output.fileno())
                undo.push_async_callback(tree.kill)
                worker = cls(tree, serves)
                worker._output = await WorkerOutput.connect(os.dup(their_output.fileno()), worker.worker_id)
            undo.push_async_callback(worker._output.close)
            own: dict[str, Hear] = {"heartbeat": worker._hear_heartbeat}
            worker._peer = await Peer.connect(ours, None, {**own, **hears()})
            undo.callback(worker._peer.close)
            async with asyncio.timeout(_OPEN_S):
                await worker.call("open", **await describe_home())
            undo.pop_all()
        worker._watching = start_task(worker._watch(at_end))
        return worker

    # --- use

    @property
    def work(self) -> int:
        """How much it has to do at this moment."""
        return len(self.turns) + self.loading

    @property
    def has_work(self) -> bool:
        """Whether sessions are in it, or on their way."""
        return bool(self.sessions or self.turns or self.loading)

    @property
    def is_usable(self) -> bool:
        """Whether it takes further sessions."""
        return not (self.is_retiring or self.is_stopping or self.is_over)

    @property
    def is_blocked(self) -> bool:
        return time.monotonic() - self._beat_at > BLOCKED_S

    def state(self) -> WorkerState:
        if self.is_retiring or self.is_stopping:
            status = "retiring"
        elif self.is_blocked:
            status = "blocked"
        else:
            status = "ready"
        return WorkerState(
            worker_id=self.worker_id,
            pid=self.pid,
            status=status,  # type: ignore[arg-type] # one of the words above
            serves=self.serves,
            sessions=len(self.sessions),
            turns=len(self.turns),
            rss_bytes=self.rss_bytes,
            loop_lag_ms=self.lag_ms,
            started_at=self._started_at,
        )

    async def call(self, method: str, /, **params: Any) -> Any:
        """Ask the worker.

        Raises what the library raised there.

        Raises:
            NotReadyError: it ended before it answered.
        """
        try:
            return await self._peer.call(method, **params)
        except PeerGoneError as error:
            raise NotReadyError(
                f"worker {self.pid} ended before it had answered {method!r}", hint="try again"
            ) from error

    def check_there(self) -> None:
        """See that it is still there to be given something.

        Raises:
            NotReadyError: it has ended, and takes nothing any more.
        """
        if self.is_over:
            raise NotReadyError(f"worker {self.pid} ended meanwhile", hint="try again")

    async def ask(self, method: str, /, patience_s: float, **params: Any) -> Any:
        """Ask the worker something that it answers at once, unless it is blocked.

        Raises:
            WorkerBlockedError: it has been blocked for longer than `patience_s`.
        """
        asking = start_task(self.call(method, **params))
        try:
            while not (await asyncio.wait({asking}, timeout=BLOCKED_S / 4))[0]:
                self._check_blocked(patience_s)
        finally:
            asking.cancel()
        return asking.result()

    async def wait_until_free(self, patience_s: float) -> None:
        """Wait until it hears what it is told.

        Raises:
            WorkerBlockedError: it has been blocked for longer than `patience_s`.
        """
        while self.is_blocked and not self.is_over:
            self._check_blocked(patience_s)
            await asyncio.sleep(_LOOK_S)

    def _check_blocked(self, patience_s: float) -> None:
        if self.is_blocked and time.monotonic() - self._beat_at > patience_s:
            raise WorkerBlockedError(
                f"worker {self.pid} is blocked by a module", hint="try again; an immediate cancellation ends it"
            )

    def _hear_heartbeat(self, lag_ms: float, rss_bytes: int) -> None:
        self._beat_at = time.monotonic()
        self.lag_ms, self.rss_bytes = lag_ms, rss_bytes

    # --- end

    async def stop(self, grace_s: float = 0) -> None:
        """Let it end its turns, gently for as long as the grace lasts, close its sessions and end.

        One that takes too long is killed. Called again, it does without the rest of the grace.
        """
        self.is_stopping = True
        try:
            with suppress(NotReadyError, TimeoutError):
                async with asyncio.timeout(grace_s + _STOP_S):
                    await self.call("stop", grace_s=grace_s)
                    await self._tree.wait()
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End it, and everything that it started, without asking."""
        await self._tree.kill()
        self._peer.close()
        if self._watching is not None and self._watching is not asyncio.current_task():
            await asyncio.wait({self._watching})

    async def _watch(self, at_end: Callable[[WorkerProcess], None]) -> None:
        """Take note of its end, and tell it before anything else is placed."""
        code = await self._tree.wait()
        self.is_over = True
        self._peer.close()
        if not self.is_stopping:
            logger.error("worker %d (%s) ended by itself with %d", self.pid, self.serves, code)
        at_end(self)
        if self._output is not None:
            await self._output.close()
