"""`amplifier doctor`: what is wrong, and how to fix it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.config import resolve_app_config
from amplifier_cli.exit_codes import ExitCode
from amplifier_cli.installation import missing_packages
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Invocation, Json, invocation_of
from amplifier_cli.session_choice import find_profile
from amplifier_cli.terminal.render import can_show, styled, write, write_json
from amplifier_core.exceptions import AmplifierError
from amplifier_core.packages import provider_name
from amplifier_sessions.session_directory import is_session_id
from amplifier_sessions.session_query import SessionQuery
from amplifier_system.distributions import LABEL, mixed_installation
from amplifierd.exceptions import SessionHeldError, SettingsError
from amplifierd.home import Home
from amplifierd.session_defaults import WITHOUT_KEYS, default_profile
from amplifierd.store.hold import Holder
from amplifierd.store.process_locks import ProcessLocks
from amplifierd.store.session_files import SessionFiles

from .provider import installed

app = single_command()

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


@app.command(epilog=examples("amplifier doctor", "amplifier doctor --fix", "amplifier doctor --json"))
def doctor(
    ctx: typer.Context,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the safe fixes: compile stale profiles, repair sessions.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check this installation and its home, and say how to fix what is wrong.

    Exits with 1 if there is an error.
    """

    async def work(home: Home) -> ExitCode:
        findings: list[Finding] = []
        async for finding in examine(home, invocation_of(ctx)):
            findings.append(finding)
            if not as_json:
                _write(finding)
            if fix and finding.repair is not None:
                await finding.repair()
                if not as_json:
                    write("    fixed")
        if as_json:
            keys = ("check", "grade", "message", "fix")
            write_json([{key: getattr(finding, key) for key in keys} for finding in findings])
        return ExitCode.FAILURE if any(finding.grade == "error" for finding in findings) else ExitCode.OK

    raise typer.Exit(in_home(ctx, work))


def _write(finding: Finding) -> None:
    mark, colour = _MARKS[finding.grade]
    mark = mark if can_show(mark) else finding.grade
    write(f"{styled(mark, colour)} {finding.check}: {finding.message}")
    if finding.fix:
        write(f"    fix: {finding.fix}")


# What `amplifier doctor` looks at: each check says what is wrong and what to do about it.


Grade = Literal["ok", "warning", "error"]
_LEAST_PYTHON = (3, 11)
_LEAST_FREE = 200 * 1024 * 1024
_CLAIMED = ("amplifier-core", "amplifier-foundation")
_COMMANDS = ("amplifier", "amplifier-core", "amplifierd")
_OUR_FILES = re.compile(r"^(amplifier_(?:cli|core|foundation|kit|system|sessions)|amplifierd)/", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """What a check found; `repair` does what is safe about it, `fix` says what else to do."""

    check: str
    grade: Grade
    message: str
    fix: str = ""
    repair: Callable[[], Awaitable[Any]] | None = None


async def examine(home: Home, invocation: Invocation) -> AsyncIterator[Finding]:
    """Yield what every check finds, one after the other."""
    yield _python()
    yield _git()
    for finding in _distributions():
        yield finding
    yield _writable(home)
    yield _space(home)
    for warning in home.settings.warnings:
        yield Finding("settings", "warning", warning, f"correct {home.paths.settings_file}")
    yield await _agent(home, invocation)
    for module_id in installed():
        if missing := missing_packages(module_id):
            text = f"{module_id} needs packages that are not installed: {', '.join(missing)}"
            yield Finding("packages", "error", text, f"amplifier provider install {provider_name(module_id)}")
    async for finding in _profiles(home):
        yield finding
    async for finding in _sessions(home):
        yield finding


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LEAST_PYTHON:
        return Finding("python", "error", f"Python {version} is too old", "install Python 3.11 or newer")
    return Finding("python", "ok", f"Python {version}")


def _git() -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("git", "error", "git is not installed", "install git: sources are fetched with it")
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("git", "error", f"git does not work: {error}", f"repair or replace {path}")
    return Finding("git", "ok", run.stdout.strip())


def _distributions() -> Iterator[Finding]:
    """Look at who else brings packages or commands of our names, and whether the names of our parts are taken."""
    mixed = mixed_installation()
    if mixed is not None:
        text, _, fix = str(mixed).partition("\n  fix: ")
        yield Finding("installation", "error" if mixed.replaced else "warning", text, fix)
    for each in importlib.metadata.distributions():
        name = str(each.metadata["Name"])
        if name == "amplifier" or LABEL in each.version:
            continue
        text = f"{name} {each.version}"
        commands = [point.name for point in each.entry_points if point.group == "console_scripts"]
        if taken := [command for command in _COMMANDS if command in commands]:
            message = f"{text} has a command {' and '.join(taken)} too, and the one that was installed last is started"
            fix = "start ours with python -m amplifier_cli and python -m amplifierd, or give each its own environment"
            yield Finding("commands", "warning", message, fix)
        if found := sorted(set(_OUR_FILES.findall(each.read_text("RECORD") or ""))):
            message = f"{text} installs files into {', '.join(found)}, which are ours"
            yield Finding("packages", "warning", message, f"give {name} an environment of its own")
    for name in _CLAIMED:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            message = f"nothing tells installers that {name} is here: what requires it fetches another over ours"
            yield Finding("installation", "warning", message, "install Amplifier again")


def _writable(home: Home) -> Finding:
    place = home.paths.home
    nearest = next(parent for parent in (place, *place.parents) if parent.exists())
    if os.access(nearest, os.W_OK | os.X_OK):
        return Finding("home", "ok", str(place))
    fix = f"make {nearest} writable for you, or choose another: amplifier --home DIR"
    return Finding("home", "error", f"{place} cannot be written", fix)


def _space(home: Home) -> Finding:
    place = home.paths.home
    nearest = next(parent for parent in (place, *place.parents) if parent.exists())
    free = shutil.disk_usage(nearest).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < _LEAST_FREE:
        return Finding("space", "error", text, "free some space: amplifier source prune, amplifier session cleanup")
    return Finding("space", "ok", text)


async def _agent(home: Home, invocation: Invocation) -> Finding:
    """Look at what new sessions run: the profile or the bundle of the settings, else the default."""
    try:
        source = resolve_app_config(home=invocation.home).source()
    except SettingsError as error:
        return Finding("settings", "error", error.message, error.hint)
    if "bundle" in source:
        return Finding("agent", "ok", f"the bundle {source['bundle']} is used")
    try:
        chosen = (
            str(await find_profile(home, source["profile"]))
            if source
            else await default_profile(home.paths, home.settings, home.profiles, home.keys, environment=os.environ)
        )
    except (AmplifierError, ValueError) as error:
        return Finding("agent", "error", str(error), "choose a profile that exists: amplifier config set profile ID")
    if chosen == WITHOUT_KEYS:
        return Finding("key", "warning", "no provider has a key; foundation/offline is used", "amplifier init")
    return Finding("agent", "ok", f"{chosen} is used")


async def _profiles(home: Home) -> AsyncIterator[Finding]:
    """Look at the profiles that have been compiled."""
    await home.collections.extract_missing()
    for profile in home.profiles.list():
        if not profile.valid:
            text = "; ".join(map(str, profile.issues))
            yield Finding("profile", "error", text, f"correct it: {profile.path}")
            continue
        if not profile.is_compiled:
            continue
        profile_id = str(profile.profile_id)
        found = await home.profiles.status(profile_id)
        if found.status in ("fresh", "degraded"):
            yield Finding("profile", "ok", f"{profile_id} is {found.status}")
        else:
            why = ", ".join(map(str, found.reasons)) or found.status
            fix = f"amplifier profile compile {profile_id}"
            yield Finding("profile", "warning", f"{profile_id}: {why}", fix, _compiling(home, profile_id))


def _compiling(home: Home, profile_id: str) -> Callable[[], Awaitable[Any]]:
    return lambda: home.profiles.compile(profile_id)


async def _sessions(home: Home) -> AsyncIterator[Finding]:
    """Look at the sessions, each of them where they are files."""
    looking = _session_files(home) if home.settings.store.is_files else _shared_sessions(home)
    async for finding in looking:
        yield finding


async def _shared_sessions(home: Home) -> AsyncIterator[Finding]:
    """Look at a store that machines share: whether it can be reached, and what processes that are gone left in it."""
    store = home.sessions.runtime.store
    try:
        abandoned = await store.abandoned()
        count = (await store.list(SessionQuery(limit=1))).total
    except AmplifierError as error:
        yield Finding("session", "error", error.message, error.hint)
        return
    for session_id in abandoned:
        found, fix = (
            f"{session_id} was left open by a process that no longer runs",
            f"amplifier session repair {session_id}",
        )
        yield Finding("session", "warning", found, fix, _repairing(home, session_id))
    yield Finding("session", "ok", f"{count} session{'' if count == 1 else 's'} in {home.settings.store}")


async def _session_files(home: Home) -> AsyncIterator[Finding]:
    """Look at every stored session: whether it can be read, and whether a process that is gone left it in a turn."""
    count = 0
    for directory in _directories(home.paths.sessions):
        session_id = directory.name
        count += 1
        try:
            home.sessions.get(session_id)
            home.sessions.messages(session_id)
        except (AmplifierError, OSError, ValueError) as error:
            text = error.message if isinstance(error, AmplifierError) else str(error)
            yield Finding("session", "error", f"{session_id}: {text}", f"amplifier session delete {session_id}")
            continue
        if (gone := _gone_holder(home, directory)) is not None:
            text = f"{session_id} was left open by {gone}, which no longer runs"
            yield Finding(
                "session", "warning", text, f"amplifier session repair {session_id}", _repairing(home, session_id)
            )
    yield Finding("session", "ok", f"{count} session{'' if count == 1 else 's'}")


def _repairing(home: Home, session_id: str) -> Callable[[], Awaitable[Any]]:
    async def repair() -> None:
        try:
            await home.sessions.repair(session_id)
        except SessionHeldError:  # another process works on it by now
            return

    return repair


def _directories(sessions: Path) -> list[Path]:
    return sorted(each for each in sessions.glob("*") if each.is_dir() and is_session_id(each.name))


def _gone_holder(home: Home, directory: Path) -> Holder | None:
    """Return the process that holds a session and is gone, None if it is not held or the holder lives."""
    hold = SessionFiles(directory).read_hold()
    return None if hold is None or ProcessLocks(home.paths.run).counts(hold) else hold.holder
