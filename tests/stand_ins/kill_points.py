"""Killing a process at chosen points of what it does to files, for the programs in which tests let something crash.

    for point in spread(count_changes(act), 20):
        was_killed = kill_at(point, act)

Every act runs in a child of its own, which sees the files as they are.
"""

import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Act = Callable[[], object]

_CHANGES = frozenset(
    {
        *("os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod"),
        *("ctypes.dlopen", "subprocess.Popen"),
    }
)


class _Watch:
    """Counts what changes a file or starts a process; at the last one there is no more."""

    def __init__(self) -> None:
        self.count, self.last, self.is_on = 0, -1, False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        is_write = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if event in _CHANGES or (is_write and not _is_lock(args[0])):
            self.count += 1
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)


def _is_lock(path: object) -> bool:
    """Say whether a file is only there to be locked: it is opened again and again while another holds it."""
    return isinstance(path, str | bytes) and Path(os.fsdecode(path)).parent.name == "locks"


_watch = _Watch()
sys.addaudithook(_watch)


def import_modules_of(act: Act) -> None:
    """Import here what an act imports, so that the children need not: in this process there must be no threads."""
    with tempfile.TemporaryFile("w+") as names:

        def noted() -> None:
            act()
            names.write("\n".join({*sys.modules} - {"__main__"}))
            names.flush()

        if not succeeds(noted):
            raise RuntimeError("the act fails even if nothing kills it")
        names.seek(0)
        for name in names.read().splitlines():
            with suppress(ImportError):  # of a module that came from somewhere else
                importlib.import_module(name)


def count_changes(act: Act) -> int:
    """Return how many changes an act makes."""
    reader, writer = os.pipe()

    def counted() -> None:
        _watch.is_on = True
        act()
        _watch.is_on = False
        os.write(writer, str(_watch.count).encode())

    if not succeeds(counted):
        raise RuntimeError("the act fails even if nothing kills it")
    return int(os.read(reader, 100))


def kill_at(point: int, act: Act) -> bool:
    """Run an act that is killed at one of its changes; say whether it was."""

    def killed() -> None:
        _watch.last, _watch.is_on = point, True
        act()

    ended = _run(killed)
    return os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL


def succeeds(act: Act) -> bool:
    """Run an act to its end and say whether it got there."""
    return _run(act) == 0


def spread(total: int, points: int) -> list[int]:
    """Return points from the first change to the last: all of them if there are not more."""
    if total <= points:
        return list(range(1, total + 1))
    return [1 + round(step * (total - 1) / (points - 1)) for step in range(points)]


def _run(act: Act) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:  # noqa: BLE001 - the child ends here, whatever happened
            sys.excepthook(*sys.exc_info())
        finally:
            _watch.is_on = False
            os._exit(status)
    return os.waitpid(child, 0)[1]
