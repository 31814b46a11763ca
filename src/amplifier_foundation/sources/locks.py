"""One worker for one cache entry: in this event loop, in this process and among processes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary, WeakValueDictionary

from amplifier_foundation.exceptions import RefResolutionError

from .store import make_directory

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
        left_s, pause_s = timeout_s, _FIRST_LOOK_S
        while True:
            try:
                lock.acquire(blocking=False)
                break
            except Timeout:
                if left_s <= 0:
                    raise RefResolutionError(
                        f"another process has worked on {ref} for more than {timeout_s:.0f} s ({path})", ref, "timeout"
                    ) from None
            if not waiting:
                waiting = True
                on_wait()
            await asyncio.sleep(pause_s)
            left_s -= pause_s
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
