"""The sessions that are open in this process: how they are created, resumed, shared and closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from amplifier_core.display import DisplaySystem
from amplifier_foundation.exceptions import BundleError
from amplifier_system.tasks import run_to_end
from amplifierd.checkpoints import Checkpoints
from amplifierd.exceptions import CheckpointError, SessionNotFoundError, SessionStateError
from amplifierd.limits import Limits
from amplifierd.sessions.events.tree_events import Event, Subscription
from amplifierd.sessions.layers.calls import CallLayer
from amplifierd.sessions.layers.checkpointing import DIRECTORY, TurnCheckpoints
from amplifierd.sessions.questions.approval import Approver, DenyAll
from amplifierd.store.json_lines import as_stored
from amplifierd.store.protocol import Hold, NewSession
from amplifierd.store.record import SessionRecord, SessionState, checked_session_id, now

from .children import as_agent
from .creation import Creation, SessionRequest
from .open_trees import OpenTrees
from .prompt_queue import DOCUMENT as QUEUE
from .runner import ExecutionRunner
from .runtime import Runtime
from .session import Session, SessionOpening
from .session_reading import SessionReader
from .session_setup import SessionSetup
from .tree import SessionTree

logger = logging.getLogger(__name__)

ENDED: tuple[SessionState, ...] = ("completed", "failed", "terminated")

T = TypeVar("T")

FindCheckpoints = Callable[..., Checkpoints]


@dataclass(frozen=True)
class Defaults:
    """What a session gets that does not say: its profile and its working directory."""

    profile: Callable[[], Awaitable[str]]
    working_dir: Callable[[], Path]


class OpenSessions:
    """Opens sessions; one that is open twice in this process is one session with two users."""

    def __init__(
        self,
        runtime: Runtime,
        creation: Creation,
        reader: SessionReader,
        find_checkpoints: FindCheckpoints,
        defaults: Defaults,
    ) -> None:
        self.runtime, self._creation, self._defaults = runtime, creation, defaults
        self._store, self._reader = runtime.store, reader
        self._find_checkpoints = find_checkpoints
        self._open: dict[str, Session] = {}
        self._users: dict[str, int] = {}
        self.trees = OpenTrees(runtime)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def find(self, session_id: str) -> Session | None:
        """The session of an id if it is open in this process."""
        return self._open.get(session_id)

    def is_open(self, session_id: str) -> bool:
        """True if a session is open in this process."""
        return session_id in self._open

    def open(
        self,
        profile: str | None = None,
        *,
        bundle: str | Path | None = None,
        plan: Mapping[str, Any] | None = None,
        working_dir: str | Path | None = None,
        approver: Approver | None = None,
        display: DisplaySystem | None = None,
        **options: Any,
    ) -> SessionOpening:
        """Create a session and open it: `async with home.sessions.open("foundation/offline") as session:`.

        It runs a profile, a bundle or a plan, by default the home's default profile. `approver` answers what the
        session asks; without one everything that would be asked about is denied. Further options are those of
        `create`. If the session cannot be started, nothing is left of it.

        Raises what `create` raises, and `RuntimeError` when a module that it cannot do without is broken.
        """
        request = self._request(profile, bundle, plan, working_dir, options)
        return SessionOpening(self._create_and_open(request, approver or DenyAll(), display))

    def subscribe(self, wants: Callable[[Event], bool] | None = None) -> Subscription:
        """Watch what happens from now on to all sessions of this home that this process works with.

        Beside every event of every loaded session come `session:created`, `session:updated`, `session:status`,
        `session:deleted` and `session:restored`. Events of the same `root_session_id` belong to one tree and share one
        `sequence`.
        """
        return self.runtime.announcements.events.subscribe(wants)

    def listen(self, hear: Callable[[Event], None]) -> Callable[[], None]:
        """Call `hear` with every event that `subscribe` would yield, until the function that this returns is called."""
        return self.runtime.announcements.events.listen(hear)

    async def create(
        self,
        profile: str | None = None,
        *,
        bundle: str | Path | None = None,
        plan: Mapping[str, Any] | None = None,
        working_dir: str | Path | None = None,
        **options: Any,
    ) -> SessionRecord:
        """Store a session without starting it.

        `options` are `base_profile`, `session_id`, `name`, `overrides`, `form`, `limits`, `on_takeover`, `metadata`,
        `tags`, `owner`, `working_dir_scope`, `start`, `history`, and `build`, what `home.profiles.ensure` has returned
        for the profile. Pass `overrides_from_elsewhere` with overrides that are not the person's own: these get keys
        and variables only by agreement.

        Raises:
            MountPlanError: the plan breaks rules.
            SessionExistsError: the id is taken.
            ProfileError, BundleError: what it should run cannot be used.
        """
        new, _ = await self._creation.prepare(await self._request(profile, bundle, plan, working_dir, options))
        await self.runtime.announcements.add(new, self.runtime.holder)
        return new.record

    def resume(
        self,
        session_id: str,
        *,
        approver: Approver | None = None,
        display: DisplaySystem | None = None,
        take_over: bool = False,
        layers: Sequence[CallLayer] = (),
    ) -> SessionOpening:
        """Open a stored session: `async with home.sessions.resume(session_id) as session:`.

        What a crash left is repaired and reported in `session.repaired`. One that is open in this process already is
        that very session. An ended one becomes active again. `take_over` takes it from a process that still lives.

        Raises:
            SessionNotFoundError: there is none of that id.
            SessionHeldError: another process holds it.
            MountPlanMissingError: its plan is gone.
        """
        return SessionOpening(
            self._resume(checked_session_id(session_id), approver or DenyAll(), display, take_over, layers)
        )

    async def default_profile(self) -> str:
        """Return the profile of a session that names none.

        Raises:
            ProfileNotFoundError: it is not there.
            ProfileValidationError: whether it can be used is not known, because it cannot be read.
            SettingsError: a file that says which one it is cannot be read.
        """
        return str(await self._defaults.profile())

    async def _request(
        self,
        profile: str | None,
        bundle: str | Path | None,
        plan: Mapping[str, Any] | None,
        working_dir: str | Path | None,
        options: Mapping[str, Any],
    ) -> SessionRequest:
        if profile is None and bundle is None and plan is None:
            profile = await self.default_profile()
        directory = _absolute(working_dir) if working_dir else self._defaults.working_dir()
        limits = Limits.read(options.get("limits")).within(Limits.read(self.runtime.settings.sessions.limits))
        on_takeover = options.get("on_takeover") or self.runtime.settings.sessions.on_takeover
        given = {**options, "limits": limits, "on_takeover": on_takeover, "tags": tuple(options.get("tags") or ())}
        return SessionRequest(
            profile=profile,
            bundle=None if bundle is None else str(bundle),
            plan=plan,
            working_dir=directory,
            is_trusted=working_dir is not None,
            **given,
        )

    async def _create_and_open(
        self, asked: Awaitable[SessionRequest], approver: Approver, display: DisplaySystem | None
    ) -> Session:
        request = await asked
        absolute_directory(request.working_dir)
        new, setup = await self._creation.prepare(request)
        session_id = new.record.session_id
        async with self.alone(session_id):
            hold = await self.runtime.announcements.create(new, self.runtime.holder)
            self.trees.begin(hold, new)
            try:
                tree = await self.trees.tree(session_id, approver, display)
                return await self._start(new.record, hold, tree, setup, (), plan=as_stored(new.plan))
            except BaseException:
                await run_to_end(self.runtime.announcements.delete(hold, new.record))
                await run_to_end(self.trees.leave(session_id))
                raise

    async def _resume(
        self,
        session_id: str,
        approver: Approver,
        display: DisplaySystem | None,
        take_over: bool,
        layers: Sequence[CallLayer],
    ) -> Session:
        async with self.alone(session_id):
            if (known := self._open.get(session_id)) is not None:
                self._users[session_id] += 1
                return known.shared()
            root_id = (await self.read_adopted(session_id)).root_id
            async with AsyncExitStack() as undo:
                hold = await self.trees.enter(root_id, take_over=take_over)
                undo.push_async_callback(lambda: run_to_end(self.trees.leave(root_id)))
                if root_id != session_id:
                    own = hold = await self._store.acquire(session_id, self.runtime.holder, take_over=take_over)
                    undo.push_async_callback(lambda: run_to_end(self._store.release(own)))
                session = await self._load(hold, approver, display, layers)
                undo.pop_all()
                return session

    async def _load(
        self, hold: Hold, approver: Approver, display: DisplaySystem | None, layers: Sequence[CallLayer]
    ) -> Session:
        """Start a stored session that no other process can change any more."""
        record = await self._store.read(hold.session_id)
        if record.status != "active":
            started = record.started_at or now()
            record = await self._store.update(hold, status="active", started_at=started, ended_at=None)
        setup = await self.setup_of(record)
        tree = await self.trees.tree(record.root_id, approver, display)
        session = await self._start(record, hold, tree, setup, layers)
        session.runner.queue.hold(await self._store.read_document(record.session_id, QUEUE) or ())
        return session

    async def setup_of(self, record: SessionRecord) -> SessionSetup:
        return await as_agent(self._store, record, await self.runtime.setups.of_record(record))

    async def read_adopted(self, session_id: str) -> SessionRecord:
        """Return what is known of a session; one of another application is copied first."""
        try:
            return await self._store.read(session_id)
        except SessionNotFoundError:
            await self._adopt(session_id)
            return await self._store.read(session_id)

    async def _adopt(self, session_id: str) -> None:
        """Copy a session of another application, which stays as it is; one of ours needs nothing."""
        source = await self._reader.source_of(session_id)
        if source is self._store:
            return
        record = await self._reader.elsewhere.read(session_id)
        setup, plan = await self._plan_of_foreign(record)
        changes = {
            "profile_name": str(setup.profile_id) if setup.profile_id else None,
            "bundle": record.bundle if setup.prepared is not None else None,
            "base_profile": setup.base_profile,
            "build_id": setup.build_id,
            **self.runtime.machine.place_of(record.working_dir),
        }
        new: NewSession = await self._reader.elsewhere.copied(session_id, plan, **changes)
        await self.runtime.announcements.add(new, self.runtime.holder)

    async def _plan_of_foreign(self, record: SessionRecord) -> tuple[SessionSetup, dict[str, Any]]:
        """Return what a session of another application goes on with: its bundle, else the default profile."""
        directory = Path(record.working_dir)
        if record.bundle is not None:
            try:
                return await self._creation.plan_for(SessionRequest(bundle=record.bundle, working_dir=directory))
            except (BundleError, OSError, ValueError) as error:
                logger.warning("bundle %s of session %s cannot be used: %s", record.bundle, record.session_id, error)
        profile = await self.default_profile()
        return await self._creation.plan_for(SessionRequest(profile=profile, working_dir=directory))

    async def runner_of(self, record: SessionRecord, hold: Hold, setup: SessionSetup) -> ExecutionRunner:
        """Return a runner that has loaded nothing yet, for what is done with a session that is not open."""
        tree = await self.trees.tree(record.root_id, DenyAll(), None)
        return ExecutionRunner(self.runtime, record.session_id, hold=hold, record=record, tree=tree, setup=setup)

    async def _start(
        self,
        record: SessionRecord,
        hold: Hold,
        tree: SessionTree,
        setup: SessionSetup,
        layers: Sequence[CallLayer],
        *,
        plan: Mapping[str, Any] | None = None,
    ) -> Session:
        runner = ExecutionRunner(
            self.runtime, record.session_id, hold=hold, record=record, tree=tree, setup=setup, layers=layers
        )
        if runner.parent is None:
            runner.checkpoints = await self.checkpoints_of(runner)
        await runner.start(plan=plan)
        session = Session(runner, self._close)
        self._open[record.session_id] = session
        self._users[record.session_id] = 1
        return session

    async def checkpoints_of(self, runner: ExecutionRunner) -> TurnCheckpoints | None:
        """Return the checkpoints of a session, None where none may be taken."""
        try:
            return TurnCheckpoints(self.checkpoints(runner.record), runner.journal.write)
        except CheckpointError as error:
            await runner.journal.write("checkpoint:unavailable", {"reason": error.message})
            return None

    def checkpoints(self, record: SessionRecord) -> Checkpoints:
        """Return the checkpoints of a session's working directory.

        Raises:
            SnapshotRefusedError: none are taken of it; the message says why.
        """
        directory = self._store.workspace(record.session_id) / DIRECTORY
        return self._find_checkpoints(directory, Path(record.working_dir), is_trusted=record.is_trusted)

    async def _close(self, session_id: str) -> None:
        """Let one user go; with the last one the session ends."""
        async with self.alone(session_id):
            users = self._users.get(session_id, 0)
            if users > 1:
                self._users[session_id] = users - 1
            else:
                await self._shut(session_id)

    async def unload(self, session_id: str) -> None:
        """End a session, whatever uses it; also one that works for its parent at this moment."""
        async with self.alone(session_id):
            await self._shut(session_id)
        if (working := self.find_runner(session_id)) is not None:
            await working.stop()

    async def _shut(self, session_id: str) -> None:
        opened = self._open.pop(session_id, None)
        self._users.pop(session_id, None)
        if opened is not None:
            opened.turn_away()
            await run_to_end(self._end(opened.runner))

    async def _end(self, runner: ExecutionRunner) -> None:
        try:
            await runner.cleanup()
        finally:
            await self.trees.leave(runner.record.root_id)

    def alone(self, session_id: str) -> asyncio.Lock:
        """Return the lock of a session: it is opened, changed and closed by one at a time."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    async def under_hold(self, session_id: str, work: Callable[[Hold], Awaitable[T]]) -> T:
        """Do something with a session that no one opens, changes or closes meanwhile."""
        async with self.alone(checked_session_id(session_id)):
            return await self.held(session_id, work)

    async def held(self, session_id: str, work: Callable[[Hold], Awaitable[T]]) -> T:
        """Do something under the hold of a session whose lock the caller has."""
        root_id = (await self._reader.own(session_id)).root_id
        async with self.trees.held(root_id) as root_hold:
            if session_id == root_id:
                return await work(root_hold)
            hold = await self._store.acquire(session_id, self.runtime.holder)
            try:
                return await work(hold)
            finally:
                await run_to_end(self._store.release(hold))

    async def announce(self, hold: Hold, record: SessionRecord, *entries: tuple[str, Mapping[str, Any]]) -> None:
        """Store and publish what happened to a session that is not loaded; others of its tree may be."""
        tree = self.trees.find(record.root_id)
        await self.runtime.announcements.tell(hold, record, *entries, tree=tree.events if tree is not None else None)

    def find_runner(self, session_id: str) -> ExecutionRunner | None:
        """Return what runs a session in this process, be it opened or at work for its parent."""
        trees = (opened.runner.tree for opened in self._open.values())
        return next((tree.runners[session_id] for tree in trees if session_id in tree.runners), None)

    async def close(self) -> None:
        """Close every open session and the store."""
        for session_id in tuple(self._open):
            async with self.alone(session_id):
                await self._shut(session_id)
        await self._store.close()


def absolute_directory(path: str | Path) -> Path:
    """Return where a session works.

    Raises:
        SessionStateError: it is not a directory.
    """
    directory = _absolute(path)
    try:
        is_usable = directory.is_dir()
    except (OSError, ValueError):  # no directory can have such a name
        is_usable = False
    if not is_usable:
        raise SessionStateError(
            f"the working directory {directory} is not a directory", hint="create it, or name another"
        )
    return directory


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()
