"""Files and directories of the cache: written whole, removed whole, private to their owner."""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_system.files import write_atomically
from amplifier_system.tasks import start_task

logger = logging.getLogger(__name__)

PRIVATE_DIRECTORY = 0o700


def make_directory(path: Path) -> Path:
    """Create a directory, and those above it, for the owner alone."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    return path


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None when there is no such file or no object in it."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read and counts as missing: %s", path, error)
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def now() -> str:
    """Return the time as it is stored: UTC, ISO 8601, with `Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def unique() -> str:
    return uuid.uuid4().hex


def remove(path: Path) -> None:
    """Remove a file or a directory with all that is in it; what is not there is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=partial(_unlock_and_retry, path))
    else:
        path.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Take a directory out of the cache in one step, then remove it: no one sees a half-removed tree."""
    trash = path.with_name(f".trash-{unique()}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(trash)
    remove(trash)


def tree_bytes(tree: Path) -> int:
    """Return the bytes of all files in a tree."""
    return sum(Path(directory, name).lstat().st_size for directory, _, names in os.walk(tree) for name in names)


def _unlock_and_retry(tree: Path, act: Callable[..., Any], path: str, error: tuple[Any, BaseException, Any]) -> None:
    """Archives and repositories may hold directories without write permission; nothing around the tree is changed."""
    if isinstance(error[1], FileNotFoundError):
        return
    for locked in (Path(path).parent, Path(path)):
        if locked.is_relative_to(tree) and locked.is_dir() and not locked.is_symlink():
            with contextlib.suppress(OSError):
                locked.chmod(PRIVATE_DIRECTORY)
    if Path(path).is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        act(path)


# One worker for one cache entry: in this event loop, in this process and among processes.


_FIRST_LOOK_S = 0.01
_LAST_LOOK_S = 0.2

_loops: "WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Path, asyncio.Lock]]" = WeakKeyDictionary()


@asynccontextmanager
async def locked(path: Path, *, ref: str, timeout_s: float, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock file `path`; `on_wait` is called once if another holder has it.

    The operating system frees the lock of a process that dies.

    Raises:
        RefResolutionError: with reason `timeout`.
    """
    from filelock import FileLock, Timeout  # loaded only where something is fetched

    mutex = _loops.setdefault(asyncio.get_running_loop(), WeakValueDictionary()).setdefault(path, asyncio.Lock())
    if waiting := mutex.locked():
        on_wait()
    async with mutex:
        make_directory(path.parent)
        lock = FileLock(path, thread_local=False)
        remaining_s, pause_s = timeout_s, _FIRST_LOOK_S
        while True:
            try:
                lock.acquire(blocking=False)
                break
            except Timeout:
                if remaining_s <= 0:
                    raise RefResolutionError(
                        f"another process has worked on {ref} for more than {timeout_s:.0f} s ({path})", ref, "timeout"
                    ) from None
            if not waiting:
                waiting = True
                on_wait()
            await asyncio.sleep(pause_s)
            remaining_s -= pause_s
            pause_s = min(pause_s * 1.5, _LAST_LOOK_S)
        try:
            yield
        finally:
            lock.release()


@contextmanager
def locked_now(path: Path, *, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock file `path` if it is free, and say so; for short work, or work that can be skipped."""
    from filelock import FileLock, Timeout  # loaded only where something is changed

    make_directory(path.parent)
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=wait_s, poll_interval=_FIRST_LOOK_S)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


T = TypeVar("T")

_BATCH = 32


class WorkerBatches(Generic[T]):
    """Runs blocking jobs off the event loop; those that come at the same time share worker threads."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, list[tuple[Callable[[], T], asyncio.Future[T]]]] = (
            WeakKeyDictionary()
        )
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, job: Callable[[], T]) -> T:
        """Return the job's result, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        if not waiting:
            loop.call_soon(self._start, loop)  # after every caller that is ready now has added its job
        waiting.append((job, future))
        return await future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._waiting.pop(loop)
        for begin in range(0, len(jobs), _BATCH):
            task = start_task(_run_batch(jobs[begin : begin + _BATCH]))
            self._running.add(task)
            task.add_done_callback(self._running.discard)


async def _run_batch(jobs: list[tuple[Callable[[], T], "asyncio.Future[T]"]]) -> None:
    try:
        deliveries = await asyncio.to_thread(lambda: [_do(job, future) for job, future in jobs])
        for deliver in deliveries:
            deliver()
    finally:
        for _, future in jobs:
            future.cancel()  # without a thread there is no result; no one is left waiting for one


def _do(job: Callable[[], T], future: "asyncio.Future[T]") -> Callable[[], None]:
    """Run a job and return what tells its caller, on the event loop, how it went."""
    try:
        result = job()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
        failure = error
        return lambda: None if future.done() else future.set_exception(failure)
    return lambda: None if future.done() else future.set_result(result)
