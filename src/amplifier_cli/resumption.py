"""Starting sessions, and going on with stored ones, perhaps with another agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifierd.documents.merging import merge_sections
from amplifierd.exceptions import SessionHeldError
from amplifierd.home import Home
from amplifierd.plans.request import lay_over_plan
from amplifierd.session_store.record import SessionRecord
from amplifierd.sessions.approvers import Approver
from amplifierd.sessions.session import Session, SessionOpening

from .config import AppConfig
from .config_mistakes import described, unread_keys
from .failures import UsageError, say
from .session_choice import find_profile, overrides
from .session_names import short_id


class SessionStartError(AmplifierError):
    """A module that a session cannot do without is broken."""


@asynccontextmanager
async def started(home: Home, opening: SessionOpening) -> AsyncIterator[Session]:
    """Open a session for a block and close it after.

    Raises:
        SessionStartError: a module that it cannot do without is broken.
    """
    session = await begun(home, opening, say)
    try:
        yield session
    finally:
        await session.close()


async def begun(home: Home, opening: SessionOpening, tell: Callable[[str], None]) -> Session:
    """Open a session; what is degraded or was repaired is told, and which keys of its configuration nothing reads.

    Raises:
        SessionStartError: a module that it cannot do without is broken.
    """
    try:
        with unread_keys() as unread:
            session = await opening
    except SessionHeldError as error:
        if error.holder is not None and error.holder.kind == "worker":
            hint = "the daemon has it: amplifier session attach joins it, amplifier run --resume gives it a prompt"
            error.reword(error.message, hint=hint)
        raise
    except RuntimeError as error:  # the kernel's word for a plan that cannot be started
        raise cannot_start(error) from error
    for line in await described(home, session, unread):
        tell(f"warning: {line}")
    tell_state(session.record, tell)
    if session.repaired:
        tell("note: the last turn was interrupted; the session has been repaired")
    return session


def cannot_start(error: Exception) -> SessionStartError:
    """Return what to say of a session whose modules do not come up."""
    hint = "amplifier profile verify says what is wrong with a profile, amplifier --debug shows the traceback"
    said = error.message if isinstance(error, AmplifierError) else str(error)
    return SessionStartError(f"the session cannot be started: {said}", hint=hint)


def tell_state(record: SessionRecord, tell: Callable[[str], None]) -> None:
    """Tell which modules a session does without."""
    for failure in record.load_warnings:
        tell(f"warning: {failure.get('module_id')} is not there: {failure.get('error')}")


_FIXED = ("bundle",)
CHANGEABLE = ("provider", "model", "effort", "max_iterations")


async def resumed(
    home: Home,
    record: SessionRecord,
    approver: Approver,
    flags: Mapping[str, Any] | None = None,
    *,
    plan: Path | None = None,
) -> SessionOpening:
    """Return the opening of a stored session. With the flag `profile` it goes on with that one.

    Raises:
        UsageError: a flag is given that cannot change for a session.
    """
    typed = given(flags, plan)
    if profile := await other_profile(home, record, typed):
        await home.sessions.change_profile(record.session_id, profile)
    if "max_cost" in typed:
        await home.sessions.update(record.session_id, limits={**(record.limits or {}), "cost_usd": typed["max_cost"]})
    wanted = {key: typed[key] for key in CHANGEABLE if key in typed}
    return SessionOpening(_resumed_with(home, record, approver, wanted))


def given(flags: Mapping[str, Any] | None, plan: Path | None = None) -> dict[str, Any]:
    """Return the flags that say how a stored session is to go on.

    Raises:
        UsageError: one is given that cannot change for a session.
    """
    typed = _given(flags)
    fixed = [key for key in _FIXED if key in typed] + (["plan"] if plan else [])
    if fixed:
        names = ", ".join(f"--{key.replace('_', '-')}" for key in fixed)
        raise UsageError(
            f"{names} cannot be changed for a session that exists",
            hint="switch it to another profile with --profile, or start a new session",
        )
    return typed


async def other_profile(home: Home, record: SessionRecord, typed: Mapping[str, Any]) -> str | None:
    """Return the profile that a session is to go on with, None when it keeps its own; a change is told."""
    if "profile" not in typed:
        return None
    profile = str(await find_profile(home, typed["profile"]))
    if profile == record.profile_name:
        return None
    before = record.profile_name or record.bundle or "a plan"
    say(f"warning: session {short_id(record.session_id)} ran {before} and goes on with {profile}")
    return profile


async def _resumed_with(home: Home, record: SessionRecord, approver: Approver, wanted: Mapping[str, Any]) -> Session:
    session = await home.sessions.resume(record.session_id, approver=approver)
    if wanted:
        try:
            await change_agent(home, session, wanted)
        except BaseException:
            await session.close()
            raise
        told = ", ".join(str(value) for value in wanted.values())
        say(f"warning: session {short_id(record.session_id)} asks {told} from now on")
    return session


async def change_agent(home: Home, session: Session, wanted: Mapping[str, Any]) -> None:
    """Let a session go on with another provider, model, effort or number of iterations; its history stays.

    Raises:
        UsageError: the session's plan has no such provider.
    """
    record = session.record
    plan = session.runner.kernel.plan  # with its keys, which home.sessions.plan leaves out
    given = overrides(AppConfig.model_validate(_given(wanted)), home, plan) or {}
    changed = lay_over_plan(plan, given, allow_modules=False)
    settings = merge_sections(record.settings_overrides, given)
    agent = record.profile_name or record.bundle
    told = {"from": agent, "to": agent, "build_id": record.build_id, **_given(wanted)}
    equipment = session.runner.equipment
    await session.change_plan(equipment, changed, {"settings_overrides": settings}, told, cancel=False)


def like(home: Home, session: Session, approver: Approver) -> SessionOpening:
    """Return the opening of a new session with the agent of another, in the same directory."""
    record = session.record
    options: dict[str, Any] = {"working_dir": record.working_dir, "approver": approver, "limits": record.limits}
    if record.profile_name:
        return home.sessions.open(record.profile_name, overrides=record.settings_overrides or None, **options)
    if record.bundle:
        return home.sessions.open(bundle=record.bundle, overrides=record.settings_overrides or None, **options)
    return home.sessions.open(plan=session.runner.kernel.plan, **options)


def _given(flags: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (flags or {}).items() if value is not None}
