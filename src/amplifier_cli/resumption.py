"""Beginning sessions, and going on with stored ones, perhaps with another agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_core.mount_plan import SESSION_MEMBERS, MountPlan
from amplifier_system.near_names import did_you_mean
from amplifier_system.startup import end_the_start
from amplifierd.home import Home
from amplifierd.issues import ON_PROFILE
from amplifierd.sessions.creation import overrides_of
from amplifierd.sessions.questions.approval import Approver
from amplifierd.sessions.unread_keys import UnreadKey
from amplifierd.store.record import SessionRecord

from .attended_session import AttendedSession
from .failures import UsageError, say
from .session_choice import find_profile, picked_provider
from .session_names import missing_modules, short_id, without
from .session_places import SessionPlace, lost_with

Opening = Awaitable[AttendedSession]

_FIXED = ("bundle",)
_CHANGEABLE = ("provider", "model", "effort", "max_iterations")


@asynccontextmanager
async def attended(home: Home, opening: Opening) -> AsyncIterator[AttendedSession]:
    """Open a session for a block and close it after.

    Raises:
        SessionStartError: a module that it cannot do without is broken.
        DaemonLostError: the daemon ended; the message says how to go on.
    """
    session = await begun(home, opening, say)
    try:
        with lost_with(session.session_id):
            yield session
    finally:
        await session.close()


def warning_words(warning: Mapping[str, Any]) -> str:
    """Return what a session's record says of a module that is missing, or not where it was named."""
    return str(warning.get("message") or f"{warning.get('module_id')} is missing: {warning.get('error')}")


async def begun(home: Home, opening: Opening, tell: Callable[[str], None]) -> AttendedSession:
    """Open a session; what is degraded or was repaired is told, and which keys of its configuration nothing reads.

    Raises:
        SessionStartError: a module that it cannot do without is broken.
    """
    session = await opening
    end_the_start()
    for line in await described(home, session):
        tell(f"warning: {line}")
    for warning in session.record.load_warnings:
        word = "note" if warning.get("code") == ON_PROFILE else "warning"
        tell(f"{word}: {warning_words(warning)}")
    if session.repaired:
        tell("note: the last turn was interrupted; the session has been repaired")
    return session


def refuse_missing(record: SessionRecord) -> None:
    """Take a session only if all modules of its plan are there.

    Raises:
        AmplifierError: one is not.
    """
    if missing := missing_modules(record):
        raise AmplifierError(
            f"the session would run {without(missing)}; nothing was asked",
            hint="mend what the warning names, or leave out --strict",
        )


async def resumed(
    home: Home,
    place: SessionPlace,
    record: SessionRecord,
    approver: Approver,
    flags: Mapping[str, Any] | None = None,
    *,
    plan: Path | None = None,
) -> AttendedSession:
    """Go on with a stored session. With the flag `profile` it goes on with that one.

    Raises:
        UsageError: a flag is given that cannot change for a session.
    """
    typed = _given(flags, plan)
    if profile := await _other_profile(home, record, typed):
        await place.change_profile(record.session_id, profile)
    if "max_cost" in typed:
        await place.update(record.session_id, limits={**(record.limits or {}), "cost_usd": typed["max_cost"]})
    if "permissions" in typed:
        await place.update(record.session_id, permission_level=typed["permissions"])
    session = await place.resume(record.session_id, approver)
    wanted = {key: typed[key] for key in _CHANGEABLE if key in typed}
    if wanted:
        try:
            await change_agent(home, session, wanted)
        except BaseException:
            await session.close()
            raise
        text = ", ".join(str(value) for value in wanted.values())
        say(f"warning: session {short_id(record.session_id)} uses {text} from now on")
    return session


def _given(flags: Mapping[str, Any] | None, plan: Path | None) -> dict[str, Any]:
    """Return the flags that say how a stored session is to go on.

    Raises:
        UsageError: one is given that cannot change for a session.
    """
    typed = _said(flags)
    fixed = [key for key in _FIXED if key in typed] + (["plan"] if plan else [])
    if fixed:
        names = ", ".join(f"--{key.replace('_', '-')}" for key in fixed)
        raise UsageError(
            f"{names} cannot be changed for an existing session",
            hint="switch it to another profile with --profile, or start a new session",
        )
    return typed


async def _other_profile(home: Home, record: SessionRecord, typed: Mapping[str, Any]) -> str | None:
    """Return the profile that a session is to go on with, None when it keeps its own; a change is told."""
    if "profile" not in typed:
        return None
    profile = str(await find_profile(home, typed["profile"]))
    if profile == record.profile_name:
        return None
    before = record.profile_name or record.bundle or "a plan"
    say(f"warning: session {short_id(record.session_id)} ran {before} and continues with {profile}")
    return profile


async def change_agent(home: Home, session: AttendedSession, wanted: Mapping[str, Any]) -> None:
    """Let a session go on with another provider, model, effort or number of iterations; its history stays.

    Raises:
        UsageError: the session's plan has no such provider.
    """
    given = _said(wanted)
    if "provider" in given:
        given["provider"] = picked_provider(given["provider"], home.sessions.plan(session.session_id))
    await session.change_agent(**given)


async def same_agent(home: Home, session: AttendedSession) -> dict[str, Any]:
    """Return what opens another session with the agent of one, in the same directory."""
    record = session.record
    options: dict[str, Any] = {"working_dir": record.working_dir, "limits": record.limits}
    options["permission_level"] = record.permission_level
    if record.profile_name or record.bundle:
        source = {"profile": record.profile_name} if record.profile_name else {"bundle": record.bundle}
        return {**source, **overrides_of(record), **options}
    plan = await home.sessions.runtime.store.read_plan(record.session_id)  # with its keys, which others are not shown
    return {"plan": plan, **options}


def _said(flags: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (flags or {}).items() if value is not None}


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
