"""What a module logs while it mounts: the reason of one that mounts nothing is often nowhere else."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_said: ContextVar[list[str] | None] = ContextVar("amplifier_core.module_log", default=None)


class _Listener(logging.Handler):
    """Records messages for a listener in this context; nothing changes for others, or for what is printed."""

    def emit(self, record: logging.LogRecord) -> None:
        said = _said.get()
        if said is not None and record.levelno >= self.level:
            said.append(record.getMessage())
        last_resort = logging.lastResort  # Python's own, which steps back as soon as there is any handler
        if last_resort is not None and record.levelno >= last_resort.level and not _has_other_handler(record.name):
            last_resort.handle(record)


@contextmanager
def heard_from(package: str, level: int = logging.WARNING) -> Iterator[list[str]]:
    """Collect what a package logs, from this level on, until the end of the block."""
    said: list[str] = []
    own, listener = logging.getLogger(package), _Listener(level)
    token = _said.set(said)
    own.addHandler(listener)
    try:
        yield said
    finally:
        own.removeHandler(listener)
        _said.reset(token)


def _has_other_handler(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, _Listener) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
