"""Module folders on `sys.path`, counted: an entry goes when the last loader that needs it is done."""

import sys
from threading import Lock

_holders: dict[str, int] = {}
_left: set[str] = set()
_lock = Lock()


def hold(entry: str) -> bool:
    """Put `entry` first on `sys.path`; False if it was already there and stays anyway."""
    with _lock:
        if entry in sys.path and entry not in _holders:
            return False
        if entry not in sys.path:
            sys.path.insert(0, entry)
        _left.discard(entry)
        _holders[entry] = _holders.get(entry, 0) + 1
        return True


def release(entry: str) -> None:
    """Give up one hold on `entry`."""
    with _lock:
        remaining = _holders.get(entry, 0) - 1
        if remaining > 0:
            _holders[entry] = remaining
            return
        _holders.pop(entry, None)
        _left.add(entry)
        if entry in sys.path:
            sys.path.remove(entry)


def held_entries() -> frozenset[str]:
    """Return the entries that loaders put there."""
    return frozenset(_holders)


def take_left_entries() -> frozenset[str]:
    """Return the entries that are no longer needed and whose modules are still imported; each is reported once."""
    with _lock:
        left = frozenset(_left)
        _left.clear()
        return left
