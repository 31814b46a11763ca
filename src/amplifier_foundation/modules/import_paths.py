"""The `sys.path` entries of one prepared bundle: there while it has sessions, gone after the last one."""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Self

from amplifier_core import sys_path


class ImportPaths:
    """Directories that a bundle's modules are imported from.

    They are on `sys.path` from the moment they are added; when the last session that acquired them has released them
    they go, and come back with the next. Bundles that share a directory do not take it away from each other.
    """

    def __init__(self) -> None:
        self._entries: list[str] = []
        self._held: list[str] = []
        self._is_active = True
        self._sessions = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[Callable[[list[str]], Self], tuple[list[str]]]:
        """Copy the directories only: wherever the copy is, its next session puts them on `sys.path`."""
        return type(self)._idle, (self.entries,)

    @classmethod
    def _idle(cls, entries: list[str]) -> Self:
        paths = cls()
        paths._entries, paths._is_active = list(entries), False
        return paths

    @property
    def entries(self) -> list[str]:
        return list(self._entries)

    def add(self, directories: Iterable[str]) -> None:
        """Put directories first on `sys.path`, in this order, each if it is not there yet."""
        with self._lock:
            new = [entry for entry in dict.fromkeys(directories) if entry not in self._entries]
            self._entries[:0] = new
            if self._is_active:
                self._hold(new)

    def acquire(self) -> Callable[[], None]:
        """Keep the entries on `sys.path` for one more session; the returned function ends that, once."""
        with self._lock:
            self._sessions += 1
            if not self._is_active:
                self._is_active = True
                self._hold(self._entries)
        is_over = False

        def release() -> None:
            nonlocal is_over
            with self._lock:
                if is_over:
                    return
                is_over = True
                self._sessions -= 1
                if self._sessions == 0:
                    self._is_active = False
                    while self._held:
                        sys_path.release(self._held.pop())

        return release

    def _hold(self, entries: list[str]) -> None:
        for entry in reversed(entries):  # each goes to the front
            if sys_path.hold(entry):
                self._held.append(entry)
