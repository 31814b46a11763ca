"""What the library logs: in a file of the home, not between an agent's lines; with --debug on stderr."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from amplifier_system.visible import visible

_LARGEST = 1024 * 1024
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _ScrubbedFormatter(logging.Formatter):
    """Takes secrets out of a line and its traceback: modules put into errors what they like."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        return visible(self._scrub(super().format(record)))


class _QuietFileHandler(RotatingFileHandler):
    """Drops what it cannot write: on a full or read-only disk the command itself says what is wrong."""

    def handleError(self, record: logging.LogRecord) -> None: ...

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is still in its buffer
            super().close()


@contextmanager
def logging_to(directory: Path, *, debug: bool, scrub: Callable[[str], str]) -> Iterator[None]:
    """Send logs without secrets to `command.log` in a directory, or to stderr, as long as a block runs."""
    handler: logging.Handler
    if debug:
        handler = logging.StreamHandler()
    else:
        handler = _QuietFileHandler(directory / "command.log", maxBytes=_LARGEST, backupCount=1, delay=True)
        handler.addFilter(lambda record: _is_there(directory))
    handler.setLevel(logging.INFO if debug else logging.WARNING)
    handler.setFormatter(_ScrubbedFormatter(scrub))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _is_there(directory: Path) -> bool:
    """Make the directory of a log when there is something to write; if that fails, the command works without a log."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return True
