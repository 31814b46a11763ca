"""Where sessions run: in this process, or in the daemon that serves the home."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

from amplifier_core.exceptions import AmplifierError, ModuleLoadError
from amplifierd.agreements import Agreement, Agreements
from amplifierd.daemon.run_file import find_running
from amplifierd.exceptions import SessionHeldError
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.sessions.approvers import Approver
from amplifierd.sessions.session import SessionOpening
from amplifierd.sessions.working_place import unfit_working_dir

from .agreement_prompt import once_agreed
from .attended_session import AttendedSession
from .config import ResolvedConfig
from .confirmation import interruptible
from .failures import UsageError, say
from .local_session import LocalSession
from .session_names import short_id

if TYPE_CHECKING:
    from amplifierd.client.daemon_client import DaemonClient

T = TypeVar("T")
U = TypeVar("U")

_START = "start one: amplifier daemon start"
_BROKEN = "amplifier profile verify says what is wrong with a profile, amplifier --debug shows the traceback"
_HELD = "the daemon has it: amplifier session attach joins it, amplifier run --resume gives it a prompt"


class SessionStartError(AmplifierError):
    """A module that a session cannot do without is broken."""


class SessionPlace(Protocol):
    """Opens sessions and changes stored ones. `agent` is what `home.sessions.open` takes for an agent.

    A session whose modules do not come up raises `SessionStartError`.
    """

    @property
    def client(self) -> DaemonClient | None:
        """The daemon, None when sessions run here."""
        ...

    async def open(self, agent: Mapping[str, Any], approver: Approver, *, name: str | None) -> AttendedSession: ...

    async def resume(self, session_id: str, approver: Approver) -> AttendedSession: ...

    async def change_profile(self, session_id: str, profile: str) -> None: ...

    async def limit(self, session_id: str, limits: Mapping[str, Any]) -> None: ...


class InProcess:
    """Sessions of this process."""

    client = None

    def __init__(self, home: Home) -> None:
        self._home = home

    async def open(self, agent: Mapping[str, Any], approver: Approver, *, name: str | None) -> AttendedSession:
        given: dict[str, Any] = {"working_dir": Path.cwd(), **agent}
        sessions = self._home.sessions
        return await once_agreed(
            lambda: self._opened(sessions.open(**given, approver=approver, name=name)), self._agree
        )

    async def resume(self, session_id: str, approver: Approver) -> AttendedSession:
        sessions = self._home.sessions
        return await once_agreed(lambda: self._opened(sessions.resume(session_id, approver=approver)), self._agree)

    async def _agree(self, agreements: list[Mapping[str, Any]]) -> None:
        Agreements(self._home.paths).add(*map(Agreement.read, agreements))

    async def _opened(self, opening: SessionOpening) -> AttendedSession:
        try:
            return LocalSession(self._home, await opening)
        except SessionHeldError as error:
            if error.holder is not None and error.holder.kind == "worker":
                error.reword(error.message, hint=_HELD)
            raise
        except RuntimeError as error:  # the kernel's word for a plan that cannot be started
            raise _cannot_start(error) from error

    async def change_profile(self, session_id: str, profile: str) -> None:
        await self._home.sessions.change_profile(session_id, profile)

    async def limit(self, session_id: str, limits: Mapping[str, Any]) -> None:
        await self._home.sessions.update(session_id, limits=limits)


class InDaemon:
    """Sessions of a daemon."""

    def __init__(self, client: DaemonClient) -> None:
        self.client = client

    async def open(self, agent: Mapping[str, Any], approver: Approver, *, name: str | None) -> AttendedSession:
        from amplifierd.client.remote_session import RemoteSession  # few commands speak to a daemon

        body = {
            "profile_name": agent.get("profile"),
            "bundle_uri": agent.get("bundle"),
            "mount_plan": agent.get("plan"),
            "settings_overrides": agent.get("overrides"),
            "limits": agent.get("limits"),
            "working_dir": str(agent.get("working_dir") or Path.cwd()),
            "name": name,
        }
        return await self._opened(lambda: RemoteSession.create(self.client, body, approver))

    async def resume(self, session_id: str, approver: Approver) -> AttendedSession:
        from amplifierd.client.remote_session import RemoteSession  # few commands speak to a daemon

        return await self._opened(lambda: RemoteSession.resume(self.client, session_id, approver))

    async def _opened(self, attempt: Callable[[], Awaitable[AttendedSession]]) -> AttendedSession:
        try:
            return await once_agreed(attempt, self._agree)
        except ModuleLoadError as error:
            raise _cannot_start(error) from error

    async def _agree(self, agreements: list[Mapping[str, Any]]) -> None:
        await self.client.patch("/settings/agreements", {"agree": agreements})

    async def change_profile(self, session_id: str, profile: str) -> None:
        await self.client.post(f"/sessions/{session_id}/change-profile", {"profile_name": profile})

    async def limit(self, session_id: str, limits: Mapping[str, Any]) -> None:
        await self.client.patch(f"/sessions/{session_id}", {"limits": dict(limits)})


def agreed_directory(directory: Path | str, paths: Paths, *, daemon: bool | None) -> bool:
    """Ask a person before a session works in a directory from which all of a user's files, or ours, can be reached.

    Returns True where they agreed to such a directory: then each write is asked about, and no daemon works there. An
    ordinary directory is not asked about.

    Raises:
        UsageError: it is such a directory, and nobody can be asked; or a daemon is to work there.
        typer.Abort: the person said no.
    """
    reason = unfit_working_dir(directory, paths)
    if not reason:
        return False
    hint = "change to the directory of a project"
    if daemon:
        raise UsageError(f"no session of a daemon works in {directory}: {reason}", hint=hint)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"no unattended session works in {directory}: {reason}", hint=hint)
    say(f"{directory} is not the directory of a project: {reason}. You are asked about each write there, --yes or not.")
    with interruptible():
        typer.confirm("Work here?", abort=True, err=True)
    return True


@asynccontextmanager
async def place_for(home: Home, wanted: bool | None, config: ResolvedConfig) -> AsyncIterator[SessionPlace]:
    """Yield where sessions are to run: in the daemon that is wanted or found, else in this process."""
    async with daemon_of(home.paths, wanted, config) as client:
        yield InProcess(home) if client is None else InDaemon(client)


@asynccontextmanager
async def daemon_of(paths: Paths, wanted: bool | None, config: ResolvedConfig) -> AsyncIterator[DaemonClient | None]:
    """Connect to the daemon of a home, None when the work is to be done here.

    Without a word of the person it is the daemon's if one runs, unless the project brings modules of its own, which
    only this process may load.

    Raises:
        UsageError: a daemon is asked for, and none runs.
    """
    is_local = wanted is False or (wanted is None and config.is_trusted and bool(config.files.of_project()))
    running = None if is_local else find_running(paths)
    if running is None:
        if wanted:
            raise UsageError(f"no daemon serves {paths.home}", hint=_START)
        yield None
        return
    from amplifierd.client.daemon_client import DaemonClient  # few commands speak to a daemon

    async with DaemonClient.of(running, paths) as client:
        yield client


async def here_or_in_daemon(home: Home, here: Awaitable[T], there: Callable[[DaemonClient], Awaitable[U]]) -> T | U:
    """Change a stored session in this process, or through the daemon if that has it loaded."""
    try:
        return await here
    except SessionHeldError as error:
        is_loaded = error.holder is not None and error.holder.kind == "worker"
        running = find_running(home.paths) if is_loaded else None
        if running is None:
            raise
    from amplifierd.client.daemon_client import DaemonClient  # few commands speak to a daemon

    async with DaemonClient.of(running, home.paths) as client:
        return await there(client)


@contextmanager
def lost_with(session_id: str) -> Iterator[None]:
    """Say how to go on with a session when its daemon ends in the block."""
    try:
        yield
    except AmplifierError as error:
        from amplifierd.client.daemon_client import DaemonLostError  # loaded when something went wrong

        if isinstance(error, DaemonLostError):
            short = short_id(session_id)
            on = f'session {short} is stored; continue it: amplifier run --resume {short} "…"'
            error.reword(error.message, hint=on)
        raise


def _cannot_start(error: Exception) -> SessionStartError:
    """Return what to say of a session whose modules do not come up."""
    said = error.message if isinstance(error, AmplifierError) else str(error)
    return SessionStartError(f"the session cannot be started: {said}", hint=_BROKEN)
