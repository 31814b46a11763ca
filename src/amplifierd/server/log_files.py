"""The daemon's log: a file that rotates, each line with the request, session and turn that it is about."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import make_directory, now
from amplifier_system.files import LineFile
from amplifier_system.visible import visible, visible_json
from amplifierd.sessions.secret_values import SecretValues, masked

LOG_FILE = "daemon.log"

_LARGEST = 10 * 1024 * 1024
_KEPT = 5
_FORMAT = "%(asctime)s %(levelname)s %(name)s%(about)s: %(message)s"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_FIELDS = ("request_id", "session_id", "correlation_id", "worker_id")

_about: ContextVar[dict[str, str]] = ContextVar("about")


@contextmanager
def logging_about(**facts: str) -> Iterator[None]:
    """Have every line that is logged inside the block, also by tasks that begin there, say what it is about.

    The facts are `request_id`, `session_id` and `correlation_id`. What outlives the block is about something else.
    """
    data = dict(facts)
    token = _about.set(data)
    try:
        yield
    finally:
        data.clear()
        _about.reset(token)


def log_also_about(**facts: str) -> None:
    """Add to what the block that this runs in is about."""
    _about.get({}).update(facts)


class DaemonLog:
    """Everything that the process logs, in one file of the home, and on stderr if it is to `echo`."""

    def __init__(self, directory: Path, secrets: SecretValues, *, level: str, as_json: bool, echo: bool) -> None:
        make_directory(directory)
        self.file = directory / LOG_FILE
        handlers: list[logging.Handler] = [_PrivateFile(self.file, maxBytes=_LARGEST, backupCount=_KEPT)]
        if echo:
            handlers.append(logging.StreamHandler())
        self._handlers, self._secrets = handlers, secrets
        self._level_before = logging.getLogger().level
        self.write(level=level, as_json=as_json)
        for handler in handlers:
            logging.getLogger().addHandler(handler)

    def write(self, *, level: str, as_json: bool) -> None:
        """Say what is written from now on, and how."""
        formatter = _JsonLines(self._secrets) if as_json else _Lines(self._secrets)
        for handler in self._handlers:
            handler.setFormatter(formatter)
        logging.getLogger().setLevel(level.upper())

    def close(self) -> None:
        root = logging.getLogger()
        root.setLevel(self._level_before)
        for handler in self._handlers:
            root.removeHandler(handler)
            with suppress(OSError):  # the disk is full
                handler.close()


class _PrivateFile(RotatingFileHandler):
    """A file that rotates; each new one is for its owner alone, too."""

    def _open(self) -> TextIOWrapper:
        file = super()._open()
        os.fchmod(file.fileno(), 0o600)
        return file


def _known(record: logging.LogRecord) -> dict[str, Any]:
    context = _about.get({})
    found = {name: getattr(record, name, None) or context.get(name) for name in _FIELDS}
    return {name: value for name, value in found.items() if value}


class _Lines(logging.Formatter):
    """Text for people."""

    converter = staticmethod(time.gmtime)

    def __init__(self, secrets: SecretValues) -> None:
        super().__init__(_FORMAT, _TIME)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        known = _known(record)
        record.about = " [" + " ".join(f"{name}={value}" for name, value in known.items()) + "]" if known else ""
        return visible(str(self._secrets.scrubbed(super().format(record))))


class _JsonLines(logging.Formatter):
    """Objects for programs."""

    converter = staticmethod(time.gmtime)

    def __init__(self, secrets: SecretValues) -> None:
        super().__init__(datefmt=_TIME)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        value = {"ts": self.formatTime(record, _TIME), "level": record.levelname.lower(), "logger": record.name}
        value |= {**_known(record), "message": record.getMessage()}
        if record.exc_info:
            value["traceback"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(self._secrets.scrubbed(value), ensure_ascii=False))


MAX_BYTES = 10 * 1024 * 1024
KEPT = 5
"""Older files that stay beside the one being written."""

logger = logging.getLogger(__name__)

_encode = json.JSONEncoder(ensure_ascii=False).encode


class AuditLog:
    """The record of a daemon's mutating calls; private, and bounded like the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LineFile | None = None

    def record(self, **facts: Any) -> None:
        """Append a line; a disk that takes none is told in the log, and stops no request."""
        line = f"{_encode({'time': now(), **facts})}\n"
        try:
            file = self._opened()
            file.append(line)
            if file.size() > MAX_BYTES:
                self._rotate()
        except OSError as error:
            logger.error("%s cannot be written (%s): %s", self._path, error, line.rstrip())  # noqa: TRY400 - expected

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> LineFile:
        if self._file is None:
            make_directory(self._path.parent)
            self._file = LineFile(self._path)
        return self._file

    def _rotate(self) -> None:
        self.close()
        for number in range(KEPT, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))


_MAX_BYTES = 1024 * 1024


def read_tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a file, at most a mebibyte of them; none when there is no such file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _MAX_BYTES))
            found = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    whole = found[1:] if size > _MAX_BYTES else found
    shown: list[str] = masked(whole[-lines:])
    return shown
