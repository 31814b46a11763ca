"""Keys in the configuration of modules that no module reads: most are misspelt."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amplifier_core.mount_plan import SESSION_MEMBERS, MountPlan
from amplifierd.home import Home
from amplifierd.sessions.session import Session

from .suggestions import did_you_mean


@dataclass(frozen=True)
class UnreadKey:
    """A key that a module does not know, and those that it does."""

    module_id: str
    key: str
    known: tuple[str, ...]


class _Listener(logging.Handler):
    def __init__(self, found: list[UnreadKey]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        known = tuple(getattr(record, "known_keys", ()))
        module_id = str(getattr(record, "module_id", ""))
        self._found += [UnreadKey(module_id, str(key), known) for key in getattr(record, "unknown_keys", ())]


@contextmanager
def unread_keys() -> Iterator[list[UnreadKey]]:
    """Collect what modules say about their configuration while they are mounted."""
    found: list[UnreadKey] = []
    listener = _Listener(found)
    logging.getLogger().addHandler(listener)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(listener)


async def described(home: Home, session: Session, found: Sequence[UnreadKey]) -> list[str]:
    """Return a line about each key that somebody wrote: where it stands, and what was probably meant."""
    if not found:
        return []
    plan = home.sessions.plan(session.session_id)
    build, changes = session.runner.equipment.build, session.record.settings_overrides or None
    lines = []
    for unread in dict.fromkeys(found):
        path = _path(plan, unread)
        if path is None:
            continue
        origin: Mapping[str, Any] = {}
        if build is not None:
            origin = (await home.plans.explain(build, path, overrides=changes))["origin"]
        hint = did_you_mean(unread.key, unread.known) or f"it knows {', '.join(sorted(unread.known))}"
        lines.append(f"{_place(origin)}{path} is not a key of {unread.module_id} and has no effect; {hint}")
    return lines


def _path(plan: Mapping[str, Any], unread: UnreadKey) -> str | None:
    """Return where a key stands in a plan, None when it is not there: keys of providers are put in at the start."""
    for entry in MountPlan(plan).entries():
        if entry.module_id == unread.module_id and unread.key in entry.config:
            is_member = entry.section in SESSION_MEMBERS
            place = f"session.{entry.section}" if is_member else f"{entry.section}[{entry.identity}]"
            return f"{place}.config.{unread.key}"
    return None


def _place(origin: Mapping[str, Any]) -> str:
    if not origin.get("file"):
        return ""
    return f"{origin['file']}:{origin['line']}: " if origin.get("line") else f"{origin['file']}: "
