"""Keys in the configuration of modules that no module reads, in the words of a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_core.mount_plan import SESSION_MEMBERS, MountPlan
from amplifierd.home import Home
from amplifierd.sessions.unread_keys import UnreadKey

from .attended_session import AttendedSession
from .suggestions import did_you_mean


async def described(home: Home, session: AttendedSession) -> list[str]:
    """Return a line about each mistaken key: where it is written, and what was probably meant."""
    if not session.unread_keys:
        return []
    record, plan = session.record, home.sessions.plan(session.session_id)
    build = home.profiles.find_build(record.profile_name, record.build_id) if record.profile_name else None
    lines = []
    for unread in session.unread_keys:
        path = _path(plan, unread)
        if path is None:
            continue
        origin: Mapping[str, Any] = {}
        if build is not None:
            changes = record.settings_overrides or None
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
