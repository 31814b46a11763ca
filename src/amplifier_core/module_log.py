"""What a module logs while it mounts: the reason of one that mounts nothing is often nowhere else."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

_heard: ContextVar[list[str] | None] = ContextVar("amplifier_core.module_log", default=None)
_blocks: Counter[str] = Counter()  # package → how many blocks it is heard in at the moment
_lock = Lock()


class _Listener(logging.Handler):
    """Records warnings for the block in this context; nothing changes for others, or for what is printed."""

    def emit(self, record: logging.LogRecord) -> None:
        said = _heard.get()
        if said is not None and record.levelno >= logging.WARNING:
            said.append(record.getMessage())
        last_resort = logging.lastResort  # Python's own, which steps back as soon as there is any handler
        if last_resort is not None and record.levelno >= last_resort.level and not _has_other_handler(record.name):
            last_resort.handle(record)


_listener = _Listener()


@contextmanager
def heard_from(package: str) -> Iterator[list[str]]:
    """Collect the warnings and errors that a package logs until the end of the block."""
    said: list[str] = []
    token = _heard.set(said)
    _listen(package)
    try:
        yield said
    finally:
        _stop_listening(package)
        _heard.reset(token)


def _listen(package: str) -> None:
    with _lock:
        _blocks[package] += 1
        logging.getLogger(package).addHandler(_listener)


def _stop_listening(package: str) -> None:
    with _lock:
        _blocks[package] -= 1
        if not _blocks[package]:
            del _blocks[package]
            logging.getLogger(package).removeHandler(_listener)


def _has_other_handler(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(handler is not _listener for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
