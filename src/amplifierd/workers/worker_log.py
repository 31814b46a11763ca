"""The log of a worker: lines of JSON on its stderr, which the daemon reads and puts into its own log.

Stderr takes them from every thread and while the event loop is blocked, and has what a dying interpreter says, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from amplifier_core.exceptions import describe
from amplifierd.sessions.secret_values import SecretValues

OURS = "amplifierd"

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
    """Log no secret that the sessions of this worker know; the daemon, which knows fewer, masks what looks like one."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Lines(secrets))


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
        told = {"level": record.levelname, "logger": record.name, "message": message, **_about.get({})}
        return json.dumps(told, ensure_ascii=True)
