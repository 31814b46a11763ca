"""Child processes with everything they start, and the way to end all of it.

A child leads a session and a process group of its own, and carries a marker in its environment that whatever it starts
inherits. Its tree is the group and, where `/proc` shows environments, every process with the marker: also one that
left the group or lost its parent.

`ProcessTree.start(arguments, environment=…)` starts a program; stdin is empty unless it is asked for, stdout and stderr
are pipes. What it returns has

- `pid`, `returncode` and `await wait()`: the child itself, which is reaped whether anyone waits or not;
- `stdin`, `stdout`, `stderr`: the pipes, blocking ones for a thread to use; the caller closes them, one by
  one or with `close_pipes()`;
- `await end(grace_s)`: SIGTERM to the whole tree, SIGKILL to what is left after the grace, even if the child itself
  has exited long before. It may be called again, at the same time or later, and a cancellation does not stop it;
- `await kill()`: the same without asking: SIGKILL to the whole group at once, so that nothing in it can start more;
- `await find_pids()`: what is alive of the tree.

`async with tree:` leaves nothing open or running: at its end the pipes are closed, and the tree is killed if the child
still runs or the block was left by an exception.

`ProcessTree.begin(start, marker)` does the same for a child that `start` makes, with a group of its own and the marker.
`spawn(arguments, environment=…)` only starts a program, for a caller that looks after it.

`kill_tree(pid, marker)` kills the tree of a process that this one did not start. `end_with_tree(marker)` ends the
process that calls it, and before it everything that carries the marker.

`reading` turns a pipe into a stream of the event loop. `is_marker` tells the variables that a filter of the
environment must let pass; `start` itself adds those of the host to whatever environment it is given.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, Protocol, Self

from .process_table import MEMBERS, MarkedMembers, MembersOf, is_running
from .tasks import run_to_end

logger = logging.getLogger(__name__)

MARKER_PREFIX = "AMPLIFIER_CHILD_"

_KILL_LIMIT_S = 5.0
_REAP_LIMIT_S = 1.0
_POLL_S = 0.02

# Starting waits for file systems and ending for processes; neither may wait for the event loop's own worker threads.
_workers = ThreadPoolExecutor(max_workers=32, thread_name_prefix="process-tree")


def new_marker(kind: str = "") -> str:
    """Return a variable for a tree that there is not yet."""
    return f"{MARKER_PREFIX}{kind}{uuid.uuid4().hex}"


def is_marker(variable: str) -> bool:
    """True if a variable of the environment is a marker, which is always passed on."""
    return variable.startswith(MARKER_PREFIX)


def spawn(
    arguments: Sequence[str | bytes],
    *,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, with this environment and the markers of the host; raises `OSError`.

    It inherits `descriptors` under their numbers.
    """
    markers = {name: value for name, value in os.environ.items() if is_marker(name)}
    return subprocess.Popen(
        list(arguments),
        env={**environment, **markers},
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=descriptors,
        start_new_session=True,
    )


class Child(Protocol):
    """A child of this process; `subprocess.Popen` is one. Without pipes it may leave those out."""

    pid: int
    returncode: int | None

    def wait(self) -> int:
        """Wait until it has exited, and reap it."""
        ...


class ProcessTree:
    """A child process and everything it starts. Made by `start`."""

    def __init__(
        self,
        process: Child,
        marker: str,
        members: MembersOf = MEMBERS,
        at_exit: Callable[[], None] = lambda: None,
    ) -> None:
        self.pid = process.pid
        self.marker = marker
        self._process = process
        self._at_exit = at_exit
        self._members = members(process.pid, marker, lambda: process.returncode is not None)
        self._exited = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._reap, args=(loop,), name=f"reap-{self.pid}", daemon=True).start()

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str | bytes],
        *,
        environment: Mapping[str, str],
        cwd: Path | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        descriptors: Sequence[int] = (),
        marker: str | None = None,
        members: MembersOf = MEMBERS,
        at_start: Callable[[], None] = lambda: None,
        at_exit: Callable[[], None] = lambda: None,
    ) -> "ProcessTree":
        """Start a program with exactly this environment, the markers of the host and one of its own.

        It inherits `descriptors` under their numbers. `marker` is its own if the caller has to know it before;
        `members` finds the tree where the marker does not. In a thread, `at_start` runs when the child was made, or
        could not be, and `at_exit` when it has exited, before those who wait for it are notified.

        Raises `OSError`. Cancelled while the program starts, it ends the tree before it gives way.
        """
        own = marker or new_marker()

        def start() -> Child:
            try:
                return spawn(
                    arguments,
                    environment={**environment, own: "1"},
                    cwd=cwd,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    descriptors=descriptors,
                )
            finally:
                at_start()

        return await cls.begin(start, own, members, at_exit)

    @classmethod
    async def begin(
        cls,
        start: Callable[[], Child],
        marker: str,
        members: MembersOf = MEMBERS,
        at_exit: Callable[[], None] = lambda: None,
    ) -> "ProcessTree":
        """Have a child made, in a thread, and look after its tree. Raises, and is cancelled, as `start`."""
        starting = asyncio.get_running_loop().run_in_executor(_workers, start)
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await run_to_end(cls._end_started(starting, marker, members, at_exit))
            raise
        return cls(process, marker, members, at_exit)

    @property
    def stdin(self) -> IO[bytes] | None:
        """The pipe to the program, if it was asked for; it blocks."""
        return self._pipe("stdin")

    @property
    def stdout(self) -> IO[bytes] | None:
        return self._pipe("stdout")

    @property
    def stderr(self) -> IO[bytes] | None:
        return self._pipe("stderr")

    def _pipe(self, name: str) -> IO[bytes] | None:
        return getattr(self._process, name, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close_pipes()
        if kind is not None or self.returncode is None:
            await self.kill()

    def close_pipes(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def returncode(self) -> int | None:
        """How the child itself ended, negative for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until the child itself has exited, and return how; it is reaped whether anyone waits or not."""
        await self._exited.wait()
        assert self._process.returncode is not None
        return self._process.returncode

    async def find_pids(self) -> list[int]:
        """Return the pids of all living processes of the tree."""
        return await asyncio.get_running_loop().run_in_executor(_workers, self._members.find)

    async def end(self, grace_s: float) -> None:
        """Ask the whole tree to stop, and kill after `grace_s` seconds what is left of it.

        Returns when nothing is left and the child is reaped; a cancellation in between is raised after that.
        """
        await run_to_end(self._end(grace_s))

    async def kill(self) -> None:
        """Kill the whole tree without asking; the group goes first, in one step, then whatever has left it."""
        await run_to_end(self._end(None))

    async def _end(self, grace_s: float | None) -> None:
        left = await asyncio.get_running_loop().run_in_executor(_workers, self._end_members, grace_s)
        if left:
            logger.warning("processes of the tree of %d could not be ended: %s", self.pid, left)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP_LIMIT_S):
                await self.wait()

    def _end_members(self, grace_s: float | None) -> list[int]:
        """End what can be ended, without a grace at once, and return the pids of the rest."""
        members = self._members
        if grace_s is not None:
            grace_end = time.monotonic() + grace_s
            members.signal(signal.SIGTERM)
            while time.monotonic() < grace_end and members.find():
                time.sleep(_POLL_S)
        members.signal_group(signal.SIGKILL)
        limit = time.monotonic() + _KILL_LIMIT_S
        empty_scans = 0
        while empty_scans < 2:  # a process that is just forked or replaced can be missed by one scan
            left = members.signal(signal.SIGKILL)
            empty_scans = 0 if left else empty_scans + 1
            if left and time.monotonic() > limit:
                return left
            time.sleep(_POLL_S / 4 if not left else _POLL_S)
        return []

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process.wait()
        self._at_exit()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits any more
            loop.call_soon_threadsafe(self._exited.set)

    @classmethod
    async def _end_started(
        cls, starting: Awaitable[Child], marker: str, members: MembersOf, at_exit: Callable[[], None]
    ) -> None:
        with contextlib.suppress(OSError):
            process = await starting
            tree = cls(process, marker, members, at_exit)
            await tree._end(None)
            tree.close_pipes()


def kill_tree(pid: int, marker: str) -> None:
    """Kill a process that another one started, and everything that has the marker in its environment."""
    members = MEMBERS(pid, marker, lambda: not is_running(pid))
    members.signal_group(signal.SIGKILL)
    limit = time.monotonic() + _KILL_LIMIT_S
    while members.signal(signal.SIGKILL) and time.monotonic() < limit:
        time.sleep(_POLL_S)


def end_with_tree(marker: str) -> NoReturn:
    """Kill everything else that has the marker in its environment, and then this process, without delay."""
    own = os.getpid()
    limit = time.monotonic() + _KILL_LIMIT_S
    members = MEMBERS(own, marker, lambda: False)
    if isinstance(members, MarkedMembers):
        while (others := [pid for pid in members.find() if pid != own]) and time.monotonic() < limit:
            for pid in others:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
    else:
        members.signal_group(signal.SIGKILL)
    os.kill(own, signal.SIGKILL)
    os._exit(1)


@contextlib.asynccontextmanager
async def reading(pipe: IO[bytes] | None) -> AsyncIterator[asyncio.StreamReader]:
    """Yield a pipe of a program as a stream of the event loop; it is closed at the end."""
    if pipe is None:
        raise RuntimeError("the program was started without this pipe")
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    try:
        yield stream
    finally:
        transport.close()
