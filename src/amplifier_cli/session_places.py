"""Where sessions run: in this process, or in the daemon that serves the home."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

from amplifier_core.exceptions import AmplifierError, ModuleLoadError
from amplifier_system.visible import visible_exactly
from amplifierd.agreements import Agreement, Agreements
from amplifierd.exceptions import AgreementNeededError, SessionHeldError
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.server.run_file import find_running
from amplifierd.sessions.module_record import choose_mode, modes_of, skills_of
from amplifierd.sessions.questions.approval import Approver
from amplifierd.sessions.session import SessionOpening
from amplifierd.sessions.working_place import unfit_working_dir

from .attended_session import AttendedSession
from .config import ResolvedConfig
from .failures import UsageError, interruptible, say
from .session_names import short_id

if TYPE_CHECKING:
    from amplifier_system.permission_levels import PermissionLevel
    from amplifierd.checkpoints import Changes, UndoResult
    from amplifierd.client.daemon_client import Agree, DaemonClient
    from amplifierd.sessions.conversation.compaction import Compaction
    from amplifierd.sessions.layers.request_parts import RequestPart
    from amplifierd.sessions.questions.lasting_approvals import RememberedApproval
    from amplifierd.sessions.session import Session
    from amplifierd.sessions.turn_result import TurnResult
    from amplifierd.sessions.unread_keys import UnreadKey
    from amplifierd.store.protocol import Message
    from amplifierd.store.record import Activity, SessionRecord

    from .attended_session import Event

T = TypeVar("T")

U = TypeVar("U")

_START = "start one: amplifier daemon start"
_BROKEN = "amplifier profile verify says what is wrong with a profile, amplifier --debug shows the traceback"
_HELD = "the daemon has it: amplifier session attach joins it, amplifier run --resume gives it a prompt"


class SessionStartError(AmplifierError):
    """A module that a session cannot do without is broken."""


class SessionPlace(Protocol):
    """Opens sessions and changes stored ones. `agent` is what `home.sessions.open` takes for an agent.

    A session whose modules do not come up raises `SessionStartError`. `agree` asks the person about the keys and
    variables that a plan from elsewhere would get, when a session begins or goes on, and when its profile changes.
    """

    agree: Agree

    @property
    def client(self) -> DaemonClient | None:
        """The daemon, None when sessions run here."""
        ...

    async def open(self, agent: Mapping[str, Any], approver: Approver, *, name: str | None) -> AttendedSession: ...

    async def resume(self, session_id: str, approver: Approver) -> AttendedSession: ...

    async def change_profile(self, session_id: str, profile: str) -> None: ...

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change `limits` or `permission_level` of a stored session."""
        ...


class InProcess:
    """Sessions of this process."""

    client = None

    def __init__(self, home: Home) -> None:
        self._home = home
        self.agree: Agree = agreed_at_terminal

    async def open(self, agent: Mapping[str, Any], approver: Approver, *, name: str | None) -> AttendedSession:
        given: dict[str, Any] = {"working_dir": Path.cwd(), "overrides_from_elsewhere": True, **agent}  # of the project
        sessions = self._home.sessions
        return await self.once_agreed(lambda: self._opened(sessions.open(**given, approver=approver, name=name)))

    async def resume(self, session_id: str, approver: Approver) -> AttendedSession:
        sessions = self._home.sessions
        return await self.once_agreed(lambda: self._opened(sessions.resume(session_id, approver=approver)))

    async def once_agreed(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Do something, again if it needs an agreement to which the person says yes; their answer is remembered.

        Raises:
            AgreementNeededError: they said no, or no one can be asked.
        """
        try:
            return await attempt()
        except AgreementNeededError as error:
            if not await self.agree(error):
                raise
            Agreements(self._home.paths).add(*map(Agreement.read, error.agreements))
        return await attempt()

    async def _opened(self, opening: SessionOpening) -> AttendedSession:
        try:
            return LocalSession(self, self._home, await opening)
        except SessionHeldError as error:
            if error.holder is not None and error.holder.kind == "worker":
                error.reword(error.message, hint=_HELD)
            raise
        except RuntimeError as error:  # the kernel's word for a plan that cannot be started
            raise _cannot_start(error) from error

    async def change_profile(self, session_id: str, profile: str) -> None:
        await self.once_agreed(lambda: self._home.sessions.change_profile(session_id, profile))

    async def update(self, session_id: str, **changes: Any) -> None:
        await self._home.sessions.update(session_id, **changes)


class InDaemon:
    """Sessions of a daemon."""

    def __init__(self, client: DaemonClient) -> None:
        self.client = client

    @property
    def agree(self) -> Agree:
        return self.client.agree

    @agree.setter
    def agree(self, agree: Agree) -> None:
        self.client.agree = agree

    async def open(self, agent: Mapping[str, Any], approver: Approver, *, name: str | None) -> AttendedSession:
        from amplifierd.client.remote_session import RemoteSession  # few commands speak to a daemon

        body = {
            "profile_name": agent.get("profile"),
            "bundle_uri": agent.get("bundle"),
            "base_profile": agent.get("base_profile"),
            "mount_plan": agent.get("plan"),
            "settings_overrides": agent.get("overrides"),
            "limits": agent.get("limits"),
            "permission_level": agent.get("permission_level"),
            "working_dir": str(agent.get("working_dir") or Path.cwd()),
            "name": name,
        }
        return await self._opened(lambda: RemoteSession.create(self.client, body, approver))

    async def resume(self, session_id: str, approver: Approver) -> AttendedSession:
        from amplifierd.client.remote_session import RemoteSession  # few commands speak to a daemon

        return await self._opened(lambda: RemoteSession.resume(self.client, session_id, approver))

    async def _opened(self, attempt: Callable[[], Awaitable[AttendedSession]]) -> AttendedSession:
        try:
            return await attempt()
        except ModuleLoadError as error:
            raise _cannot_start(error) from error

    async def change_profile(self, session_id: str, profile: str) -> None:
        await self.client.post(f"/sessions/{session_id}/change-profile", {"profile_name": profile})

    async def update(self, session_id: str, **changes: Any) -> None:
        await self.client.patch(f"/sessions/{session_id}", changes)


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
    place = visible_exactly(str(directory))
    say(f"{place} is not the directory of a project: {reason}. You are asked about each write there, --yes or not.")
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
        client.agree = agreed_at_terminal
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
    hint = "" if "\n  fix: " in said else _BROKEN
    return SessionStartError(f"the session cannot be started: {said}", hint=hint)


AGREE = "Agree? It is remembered in config/agreements.yaml"


async def agreed_at_terminal(error: AgreementNeededError) -> bool:
    """Ask the person at the terminal; without one the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(visible_exactly(error.message))
    with interruptible():
        return typer.confirm(AGREE, err=True)


class LocalSession:
    """An open session and the home that it belongs to; what changes it as a whole goes through the home.

    Its modules may be loaded anew for each of its turns, which takes the agreements of that moment.
    """

    def __init__(self, place: InProcess, home: Home, session: Session) -> None:
        self._once_agreed, self._sessions, self._session = place.once_agreed, home.sessions, session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def record(self) -> SessionRecord:
        return self._session.record

    @property
    def activity(self) -> Activity | None:
        return self._session.activity

    @property
    def repaired(self) -> bool:
        return bool(self._session.repaired)

    @property
    def unread_keys(self) -> tuple[UnreadKey, ...]:
        return self._session.unread_keys

    async def read(self) -> SessionRecord:
        return self._session.record

    async def messages(self) -> list[Message]:
        return await self._session.messages()

    # --- turns

    async def stream(self, prompt: str, **options: Any) -> AsyncIterator[Event]:
        async def begun() -> tuple[AsyncGenerator[Event, None], Event | None]:
            events = self._session.stream(prompt, **options)
            return events, await anext(events, None)

        events, first = await self._once_agreed(begun)
        async with aclosing(events):
            if first is not None:
                yield first
            async for event in events:
                yield event

    async def execute(self, prompt: str, *, queue: bool = False, **options: Any) -> TurnResult:
        return await self._once_agreed(lambda: self._session.execute(prompt, queue=queue, **options))

    async def subscribe(self) -> AsyncIterator[Event]:
        return aiter(self._session.subscribe())

    async def steer(self, text: str) -> dict[str, Any]:
        return await self._session.steer(text)

    async def cancel(self, *, immediate: bool = False, withdraw: bool = False) -> dict[str, Any]:
        taken = [await self._session.remove_queued(1) for _ in self._session.queued()] if withdraw else []
        return {**await self._session.cancel(immediate=immediate), "withdrawn": taken}

    async def queued(self) -> Sequence[str]:
        return self._session.queued()

    async def remove_queued(self, position: int) -> str:
        return await self._session.remove_queued(position)

    # --- beside turns

    async def tools(self) -> list[dict[str, Any]]:
        tools = (await self._once_agreed(self._session.load)).get("tools") or {}
        return [{"name": name, "description": getattr(tool, "description", "")} for name, tool in tools.items()]

    async def last_request(self) -> Sequence[RequestPart]:
        requests = self._sessions.requests(self.session_id)
        return [stored.part for stored in requests[-1].parts] if requests else ()

    async def change_profile(self, profile: str) -> None:
        await self._once_agreed(lambda: self._sessions.change_profile(self.session_id, profile))

    async def choose_level(self, level: PermissionLevel) -> None:
        await self._sessions.update(self.session_id, permission_level=level)

    async def remembered_approvals(self) -> Sequence[RememberedApproval]:
        return await self._sessions.remembered_approvals(self.session_id)

    async def revoke_approval(self, approval_id: str) -> None:
        await self._sessions.revoke_approval(self.session_id, approval_id)

    async def change_agent(self, **wanted: Any) -> None:
        await self._once_agreed(lambda: self._sessions.change_agent(self.session_id, **wanted))

    async def modes(self) -> dict[str, Any]:
        return modes_of(await self._session.load())

    async def choose_mode(self, name: str | None) -> dict[str, Any]:
        return await choose_mode(await self._session.load(), name)

    async def skills(self) -> dict[str, Any]:
        return await skills_of(await self._session.load())

    async def compact(self) -> Compaction:
        return await self._once_agreed(self._session.compact)

    async def rename(self, name: str) -> None:
        await self._sessions.rename(self.session_id, name)

    async def changes(self, turn: int) -> Changes:
        return await self._sessions.changes(self.session_id, turn)

    async def undo(self, turn: int, *, force: bool = False) -> UndoResult | None:
        return await self._sessions.undo(self.session_id, turn, force=force)

    async def fork(self, turn: int | None = None) -> str:
        return (await self._sessions.fork(self.session_id, turn)).session_id

    async def close(self) -> None:
        await self._session.close()
