"""One worker process, as the daemon sees it: how it is started, asked, watched and ended."""

from __future__ import annotations

import asyncio
import json
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
from amplifierd.store.record import now

from .json_rpc import Hear, Peer, PeerGoneError
from .live_sessions import WorkerState
from .worker_log import OURS
from .worker_start import DescribeHome, WorkerStart

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
        """True if sessions are in it, or on their way."""
        return bool(self.sessions or self.turns or self.loading)

    @property
    def is_usable(self) -> bool:
        """True if it takes further sessions."""
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


LINES_PER_S = 200
"""What a worker writes beyond this is counted, not kept: a module in a loop must not fill the daemon's log."""

_LONGEST = 16 * 1024
_BUFFER = 64 * 1024


class WorkerOutput(asyncio.Protocol):
    """Reads the output of one worker line by line, and logs it with the worker's id."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._rest = b""
        self._second, self._lines, self._omitted = 0, 0, 0
        self._transport: asyncio.BaseTransport | None = None
        self._is_over = asyncio.Event()

    @classmethod
    async def connect(cls, descriptor: int, worker_id: str) -> WorkerOutput:
        """Read from the end of a pipe, which belongs to what is returned from then on."""
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        try:
            _, output = await asyncio.get_running_loop().connect_read_pipe(lambda: cls(worker_id), pipe)
        except BaseException:
            pipe.close()
            raise
        return output

    async def close(self, patience_s: float = 0.5) -> None:
        """Log what is left of a worker that has ended, and let go of the pipe, even if others still have it open."""
        try:
            async with asyncio.timeout(patience_s):
                await self._is_over.wait()
        except TimeoutError:
            if self._transport is not None:
                self._transport.close()
                await self._is_over.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > _BUFFER:
            self._take(self._rest)
            self._rest = b""

    def connection_lost(self, error: Exception | None) -> None:
        if self._rest:
            self._take(self._rest)
        self._report_omitted()
        self._is_over.set()

    def _take(self, line: bytes) -> None:
        if int(time.monotonic()) != self._second:
            self._second, self._lines = int(time.monotonic()), 0
        self._lines += 1
        if self._lines > LINES_PER_S:
            self._omitted += 1
            if self._omitted == 1:
                asyncio.get_running_loop().call_later(1.0, self._report_omitted)
        elif line.strip():
            self._log(line[:_LONGEST])

    def _report_omitted(self) -> None:
        if self._omitted:
            omitted, self._omitted = self._omitted, 0
            self._pass_on(logging.WARNING, __name__, f"{omitted} lines of output were left out", {})

    def _log(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        found = _record(text)
        if found is None:
            self._pass_on(logging.INFO, f"{OURS}.workers.output", text, {})
            return
        level = logging.getLevelNamesMapping().get(str(found.pop("level", "")), logging.WARNING)
        self._pass_on(level, str(found.pop("logger", OURS)), str(found.pop("message")), found)

    def _pass_on(self, level: int, name: str, message: str, about: Mapping[str, Any]) -> None:
        logging.getLogger(name).log(level, "%s", message, extra={"worker_id": self._worker_id, **_known(about)})


def _record(text: str) -> dict[str, Any] | None:
    """Return a line of a worker's log, None for anything else that was printed."""
    if not text.startswith('{"level": "'):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "message" in found else None


def _known(about: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(about[name]) for name in ("session_id", "correlation_id") if about.get(name)}
