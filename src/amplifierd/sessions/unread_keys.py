"""Keys in the configuration of modules that no module reads: most are misspelt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class UnreadKey:
    """A key that a module does not know, and those that it does."""

    module_id: str
    key: str
    known: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "known": [*self.known]}


_collecting: ContextVar[list[UnreadKey] | None] = ContextVar("unread_keys", default=None)


class _Listener(logging.Handler):
    """Hears what modules say that are mounted in one task; others may be mounted beside it."""

    def __init__(self, found: list[UnreadKey]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if _collecting.get() is self._found:
            known = tuple(getattr(record, "known_keys", ()))
            module_id = str(getattr(record, "module_id", ""))
            self._found += [UnreadKey(module_id, str(key), known) for key in getattr(record, "unknown_keys", ())]


@contextmanager
def unread_keys() -> Iterator[list[UnreadKey]]:
    """Collect what modules say about their configuration while they are mounted."""
    found: list[UnreadKey] = []
    listener, before = _Listener(found), _collecting.set(found)
    logging.getLogger().addHandler(listener)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(listener)
        _collecting.reset(before)
