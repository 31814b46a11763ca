"""The log of a worker: lines of JSON on its stderr, which the daemon reads and puts into its own log.

Stderr takes them from every thread and while the event loop is blocked, and has what a dying interpreter says, too.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import BinaryIO, TextIO

from amplifier_core.exceptions import describe
from amplifierd.sessions.secret_values import SecretValues

OURS = "amplifierd"

_LONGEST = 64 * 1024

_about: ContextVar[dict[str, str]] = ContextVar("about")


@contextmanager
def logging_about(**facts: str) -> Iterator[None]:
    """Have what is logged inside the block, also by tasks that begin there, name a `session_id`, a `correlation_id`."""
    token = _about.set(facts)
    try:
        yield
    finally:
        _about.reset(token)


def begin_log() -> None:
    """Log to stderr from now on: warnings, until the daemon says what it wants."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def set_log_level(level: str) -> None:
    """Log what the daemon logs. Of modules and libraries there are only warnings, unless everything is wanted."""
    logging.getLogger(OURS).setLevel(level.upper())
    logging.getLogger().setLevel(logging.DEBUG if level == "debug" else max(logging.WARNING, _number(level)))


def mask_log(secrets: SecretValues) -> None:
    """Log and print no secret that the sessions of this worker know; the daemon, which knows fewer, masks the rest.

    What programs and libraries write past Python is masked by the daemon alone, if it looks like a secret.
    """
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Lines(secrets))
    sys.stdout, sys.stderr = MaskedOutput(sys.stdout, secrets), MaskedOutput(sys.stderr, secrets)


class MaskedOutput(io.TextIOBase):
    """A text stream that lets no secret through; it passes on whole lines, so that none hides at a seam."""

    def __init__(self, stream: TextIO, secrets: SecretValues) -> None:
        self._stream, self._secrets, self._rest = stream, secrets, ""

    @property
    def encoding(self) -> str:  # type: ignore[override] # read-only, as it is where it leads to
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        """What bytes are written to, past the masks."""
        return self._stream.buffer

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole, end, self._rest = (self._rest + text).rpartition("\n")
        if end:
            self._stream.write(f"{self._secrets.masked(whole)}\n")
            self._stream.flush()
        elif len(self._rest) > _LONGEST:
            self._pass_on_rest()
        return len(text)

    def close(self) -> None:
        """Pass on what no line break ends; the stream itself stays open for what the interpreter still has to say."""
        if not self.closed:
            self._pass_on_rest()
        super().close()

    def _pass_on_rest(self) -> None:
        rest, self._rest = self._rest, ""
        if rest:
            self._stream.write(self._secrets.masked(rest))
            self._stream.flush()


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


class _Lines(logging.Formatter):
    def __init__(self, secrets: SecretValues | None = None) -> None:
        super().__init__()
        self._secrets = secrets or SecretValues()

    def format(self, record: logging.LogRecord) -> str:
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - modules log what they like, and a worker must not fail over it
            message = f"{record.msg} ({describe(error)})"
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        message = self._secrets.masked(message)
        data = {"level": record.levelname, "logger": record.name, "message": message, **_about.get({})}
        return json.dumps(data, ensure_ascii=True)
