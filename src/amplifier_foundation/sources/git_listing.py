"""Reading what a commit holds before it is checked out."""

from collections.abc import Callable

from .resolved import Limits

_SUBMODULE = b"160000"


class TreeListing:
    """Takes the output of `git ls-tree -r -l -z` in pieces; raises what `refuse` makes of a tree beyond the limits.

    A few hundred bytes of repository can name millions of files, so counting must not wait for the end of the list.
    """

    def __init__(self, limits: Limits, refuse: Callable[[str], Exception]) -> None:
        self.submodules: list[str] = []
        self._limits = limits
        self._refuse = refuse
        self._entries = 0
        self._bytes = 0
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *entries, self._rest = (self._rest + chunk).split(b"\0")
        for entry in entries:
            described, _, name = entry.partition(b"\t")
            mode, _, _, size = described.split()
            if mode == _SUBMODULE:
                self.submodules.append(name.decode("utf-8", "surrogateescape"))
            elif size.isdigit():
                self._bytes += int(size)
        self._entries += len(entries)
        if self._entries > self._limits.tree_entries:
            raise self._refuse(f"it has more than {self._limits.tree_entries:,} files")
        if self._bytes > self._limits.tree_bytes:
            raise self._refuse(f"its files have more than {self._limits.tree_bytes:,} bytes")
