"""The running daemon: everything that lives as long as the process, and its start and stop."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.sources import ProgressEvent
from amplifier_system.tasks import LoopState, start_task
from amplifierd.exceptions import InvalidSettingError, NotReadyError
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.server.auth.callers import Caller
from amplifierd.server.auth.credentials import Credentials, FailedAttempts
from amplifierd.server.auth.session_access import SessionAccess
from amplifierd.server.auth.tokens import Tokens
from amplifierd.server.events.event_hub import EventHub
from amplifierd.server.events.published_event import PublishedEvent
from amplifierd.server.events.renderer import Renderer
from amplifierd.server.events.subscriber import StreamLimits
from amplifierd.sessions.events.announcements import DELETED
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.settings import Settings, load_settings
from amplifierd.settings_file import edit_settings
from amplifierd.turns.queue_choice import open_turns
from amplifierd.workers.live_sessions import LiveEvent
from amplifierd.workers.workers import Workers

from .idempotency import IdempotencyKeys
from .log_files import AuditLog
from .membership import Draining, open_cluster
from .metrics import Metrics
from .operations import Operations
from .other_members import Elsewhere
from .profile_edits import ProfileEdits
from .shared_idempotency import SharedIdempotencyKeys
from .stale_completions import remove_stale_completions
from .upkeep import Freshness, LibraryEvents, LoopLag, StaleSessions, Upkeep

if TYPE_CHECKING:
    from amplifierd.cluster.cluster import Cluster

PROGRAM = "daemon"
"""What a daemon calls itself where it holds sessions."""

Phase = Literal["starting", "ready", "draining", "stopping"]

logger = logging.getLogger(__name__)

_MOMENT_S = 0.5
_PATIENCE_S = 5.0
_FETCH_PATIENCE_S = 2.0
_TELL_S = 2.0
_AGAIN_S = 2.0
_TURNS = "interrupted turns"
_PLUGINS = "amplifierd.plugins"


class Daemon:
    """One home, served. Nothing of it is global: several can be in one process."""

    def __init__(self, home: Home, *, address: str | None = None) -> None:
        """Prepare to serve a home; `address` is where others reach this daemon."""
        self.operations = Operations(home.paths.operations_file)
        self.library_events = LibraryEvents(self._tell_of_library)
        self.home = replace(home if home.progress else home.with_progress(self._report), program=PROGRAM)
        self.boot_id = uuid.uuid4().hex
        self.events = EventHub(self.boot_id, _stream_limits(home.settings))
        self.operations.listeners.append(self._tell_operation)
        sessions, profiles = self.home.sessions, self.home.profiles
        self.live = Workers(
            sessions, self.home.resolver, shipped_collection=home.shipped_collection, on_event=self._hear
        )
        self.turns = open_turns(sessions, self.live, self._hear, self._hear_end_elsewhere)
        self.access = SessionAccess(sessions)
        self.stale_sessions = StaleSessions(profiles, sessions, self.live)
        self.phase: Phase = "starting"
        self.credentials = Credentials(home.paths, Tokens(home.paths, home.settings.auth.tokens))
        self.failed_logins = FailedAttempts()
        self.renderer = Renderer()
        self.idempotency: IdempotencyKeys | SharedIdempotencyKeys = IdempotencyKeys(home.paths.idempotency)
        self.audit = AuditLog(home.paths.audit_file)
        self.step = ""
        self.warnings: list[str] = [*home.settings.warnings]
        self.settings_waiting: list[str] = []
        self.settings_users: list[Callable[[Settings], None]] = []
        self._changing_settings = asyncio.Lock()
        self.freshness = Freshness(profiles, self.library_events.seen)
        self.upkeep = Upkeep(sessions, home.paths.cache, self._removes_sessions)
        self.loop_lag = LoopLag()
        self.metrics = Metrics()
        self._show_metrics()
        self._address = address
        self.cluster: Cluster | None = None
        self.elsewhere: Elsewhere | None = None
        self.draining = Draining(self)
        self._started = time.monotonic()
        self._coming_up: asyncio.Task[None] | None = None
        self._extracting: asyncio.Task[bool] | None = None
        self._starting_turns: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()

    def _show_metrics(self) -> None:
        gauge, states = self.metrics.gauge, self.live.states
        gauge("uptime_seconds", "Time since the start", lambda: self.uptime_seconds)
        gauge("loop_lag_seconds", "How late the event loop was last", lambda: self.loop_lag.last_s)
        gauge("loaded_sessions", "Sessions in workers", lambda: self.live.loaded)
        gauge("busy_sessions", "Sessions with a turn", lambda: sum(one.activity != "idle" for one in states()))
        gauge("workers", "Worker processes", lambda: len(self.live.workers()))
        gauge("subscribers", "Clients that watch events", lambda: self.events.subscribers)
        gauge("queued_events", "Events that clients have not taken yet", lambda: self.events.waiting)
        gauge("dropped_deltas", "Pieces that slow clients did not get, since the start", lambda: self.events.dropped)
        gauge("degraded_loops", "Loops that fail at the moment", lambda: len(self.degraded_loops))
        gauge("loop_restarts", "How often loops were started again", lambda: sum(one.restarts for one in self.loops))
        gauge("cache_bytes", "Size of the cache, measured a few times a day", lambda: self.upkeep.cache_bytes)

    def _show_cluster_metrics(self, cluster: Cluster) -> None:
        gauge, view, takeover = self.metrics.gauge, cluster.view, cluster.takeover
        gauge("cluster_members", "Members that are there", lambda: sum(one.is_live for one in view.known))
        gauge("cluster_fenced", "Members that this one shut out, since the start", lambda: takeover.fenced)
        gauge("cluster_takeovers", "Sessions that this one took over, since the start", lambda: takeover.taken)

    @property
    def profile_edits(self) -> ProfileEdits:
        """The user's own profiles, to be changed."""
        home = self.home
        return ProfileEdits(home.paths, home.profiles, home.catalogue, keep=home.keys.keep, is_used=home.is_used)

    @property
    def loops(self) -> list[LoopState]:
        """How the loops are by which this daemon works."""
        shared = [] if self.cluster is None else self.cluster.store.supervisor.states
        return [*self.live.supervisor.states, *shared]

    @property
    def degraded_loops(self) -> list[LoopState]:
        """The loops that failed and have not recovered yet."""
        return [loop for loop in self.loops if loop.is_degraded]

    @property
    def uptime_seconds(self) -> float:
        return time.monotonic() - self._started

    def knows(self, caller: Caller) -> bool:
        """True if a caller who was let in some time ago would be let in now."""
        if caller.login_hash and not self.credentials.logins.is_known(caller.login_hash):
            return False
        return not caller.token_hash or self.credentials.tokens.find_hash(caller.token_hash) is not None

    async def change_settings(self, changes: Mapping[str, Any]) -> list[str]:
        """Write settings and apply those that can be, one change at a time; return the keys that wait for a restart.

        Raises:
            InvalidSettingError: a key is unknown or a value invalid; nothing was changed.
        """
        async with self._changing_settings:
            settings, waiting = await asyncio.to_thread(change_settings, self.home.paths, self.home.settings, changes)
            self.settings_waiting = sorted({*self.settings_waiting, *waiting})
            if settings != self.home.settings:
                self._use(await asyncio.to_thread(self.home.with_settings, settings, share_sessions=True))
        self.events.tell("settings:changed", {"keys": sorted(changes)})
        return waiting

    def _use(self, home: Home) -> None:
        """Go on with the settings that the home has now; what runs ends with those it began with."""
        self.home = home
        self.live.use(home.sessions, home.resolver)
        self.upkeep.use(home.sessions)
        self.events.limits = _stream_limits(home.settings)
        for use in self.settings_users:
            use(home.settings)

    async def start(self) -> None:
        """Come up; what takes longer than a moment goes on while the server answers."""
        if self.home.settings.auth.mode != "none":
            await asyncio.to_thread(self.credentials.tokens.ensure_first)
        if isinstance(self.idempotency, IdempotencyKeys):
            await asyncio.to_thread(self.idempotency.load)
        await asyncio.to_thread(self.operations.load)
        self.library_events.start()
        await self.credentials.load()
        await self._join()
        await self.live.start()
        self.loop_lag.start()
        self._coming_up = start_task(self._come_up())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_ready.wait(), _MOMENT_S)

    async def be_ready(self) -> None:
        """Wait a little for a daemon that comes up.

        Raises:
            NotReadyError: it takes longer, or it goes down.
        """
        if self.phase == "starting":
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_ready.wait(), _PATIENCE_S)
        if self.phase != "ready":
            raise NotReadyError(f"the daemon is {self.phase}", hint="try again in a moment")

    async def _removes_sessions(self, for_s: float) -> bool:
        """True if this daemon is the one of its cluster that removes old sessions in a time."""
        return self.cluster is None or await self.cluster.claim("upkeep", for_s)

    async def _join(self) -> None:
        """Be a member of the cluster that shares the store, if it is shared."""
        cluster = await asyncio.to_thread(open_cluster, self, self._address)
        if cluster is not None:
            await cluster.start()
            await self.credentials.share(cluster.store)
            self.idempotency = SharedIdempotencyKeys(
                cluster.store.shared, lambda: cluster.member_id, cluster.view.is_live
            )
            self.cluster = cluster
            self.elsewhere = Elsewhere(cluster, self.events)
            self._show_cluster_metrics(cluster)

    async def _come_up(self) -> None:
        """Take every step; one that fails is a warning and keeps the others from nothing. Turns are started again."""
        steps: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("collections", self._extract_collections),
            ("session index", self._open_index),
            ("completions", lambda: remove_stale_completions(self.home.sessions)),
        ]
        for name, step in steps:
            await self._take(name, step)
        if not await self._take(_TURNS, self.turns.start):
            self._starting_turns = self.live.supervisor.start("start of turns", self._keep_starting_turns)
        self.step = ""
        if self.phase == "starting":
            self.phase = "ready"
            self._is_ready.set()
            self.events.tell("daemon:ready", {})
            logger.info("ready after %.2f s", self.uptime_seconds)
            self.upkeep.start(self.live.supervisor)
        await asyncio.to_thread(_name_plugins)
        if self.home.settings.startup.check_on_start:
            await self._take("profile freshness", self.freshness.look)
        if self.home.settings.startup.update_on_start and not self.home.settings.offline:
            await self._take("sync of the collections", self.home.collections.sync)

    def _hear(self, event: LiveEvent) -> None:
        self.events.publish(_published(event))
        if event.name == TURN_DONE and event.session_id == event.root_session_id:
            self.metrics.count_turn(json.loads(event.envelope)["data"])
        if event.name == DELETED and event.session_id == event.root_session_id:
            self.events.forget(event.session_id)
            self.access.forget(event.session_id)

    def _hear_end_elsewhere(self, event: LiveEvent) -> None:
        self.events.hear_end(_published(event))

    def _report(self, step: ProgressEvent) -> None:
        self.operations.report(step)
        self.library_events.hear(step)

    def _tell_of_library(self, name: str, data: Mapping[str, Any]) -> None:
        self.events.tell(name, data)
        if (name, data.get("status")) == ("profile:compiled", "compiled") and self.phase != "stopping":
            self.stale_sessions.begin(data["profile_id"])

    def _tell_operation(self, operation: dict[str, Any]) -> None:
        """Let those who asked for long work see how it goes on; what came of it they have to ask for."""
        self.metrics.count_operation(operation)
        data = {key: operation[key] for key in ("id", "kind", "target", "status", "progress")}
        self.events.tell_owners(operation["owners"], "operation:updated", data)

    async def _extract_collections(self) -> None:
        """Have the profiles of collections that were never extracted; what has to be fetched comes later."""
        self._extracting = start_task(self._take("collections", self.home.collections.extract_missing))
        await asyncio.wait({self._extracting}, timeout=_FETCH_PATIENCE_S)

    async def _open_index(self) -> None:
        await self.home.sessions.reader.list(limit=1)

    async def _take(self, name: str, step: Callable[[], Awaitable[object]]) -> bool:
        self.step = name
        try:
            await step()
        except (AmplifierError, OSError, ValueError) as error:
            logger.warning("%s failed: %s", name, error)
            self.warnings.append(f"{name}: {error}")
            return False
        return True

    async def _keep_starting_turns(self) -> None:
        """Try until turns run, which could not be started when the daemon came up; the warning lasts until then."""
        is_started = False
        while not is_started:
            await asyncio.sleep(_AGAIN_S)
            self.warnings[:] = [warning for warning in self.warnings if not warning.startswith(f"{_TURNS}: ")]
            is_started = await self._take(_TURNS, self.turns.start)
        self.step = ""
        logger.info("turns run now")

    async def stop(self) -> None:
        """Refuse new work, end what runs, and give back what is held. What is still asked is answered until `close`."""
        if self.phase == "stopping":
            return
        self.phase = "stopping"
        for task in self._beginnings():
            task.cancel()
        await self.draining.stop()
        await self._take_nothing_over()
        await self.operations.stop()
        await self.stale_sessions.stop()
        await self.turns.stop()
        await self.live.stop()
        await self.turns.close()
        self.events.close()
        await self.idempotency.close()
        await asyncio.gather(*self._beginnings(), return_exceptions=True)
        await self.upkeep.stop()
        if self.cluster is not None:
            await self.cluster.end()

    def _beginnings(self) -> list[asyncio.Task[Any]]:
        """Return what a daemon does to come up."""
        begun: tuple[asyncio.Task[Any] | None, ...] = (self._coming_up, self._extracting, self._starting_turns)
        return [task for task in begun if task is not None]

    async def close(self) -> None:
        """Let go of everything, once there are no more requests."""
        self.loop_lag.stop()
        await self.renderer.close()
        await self.credentials.close()
        if self.elsewhere is not None:
            await self.elsewhere.close()
        if self.cluster is not None:
            await self.cluster.close()
        await self.home.sessions.close()
        self.audit.close()

    async def _take_nothing_over(self) -> None:
        """Leave to the other members what one of them leaves behind while this one stops."""
        if self.cluster is None:
            return
        try:
            await self.cluster.set_draining(within_s=_TELL_S)
        except AmplifierError as error:
            logger.info("the other members are not told that this one stops: %s", error)

    def hurry(self) -> None:
        """Let a stop that is under way end turns at once."""
        self.live.hurry()


def _name_plugins() -> None:
    """Say in the log which plug-ins of the ecosystem's daemon are installed, because none is loaded."""
    for point in importlib.metadata.entry_points(group=_PLUGINS):
        by = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
        logger.warning("the plug-in %s%s is not loaded: the group %s is not supported", point.name, by, _PLUGINS)


def _published(event: LiveEvent) -> PublishedEvent:
    return PublishedEvent(
        event.name,
        event.envelope,
        session_id=event.session_id,
        root_id=event.root_session_id,
        cursor=event.cursor,
        is_delta=event.is_delta,
    )


def _stream_limits(settings: Settings) -> StreamLimits:
    stream = settings.stream
    return StreamLimits(
        queue_events=stream.queue_events, queue_bytes=stream.queue_bytes, ring_events=stream.ring_events
    )


_AT_START = frozenset(
    {"host", "port", "uds", "auth", "trusted_proxies", "tls", "metrics", "store", "cluster", "workers"}
)
"""Settings, and sections of them, that count from the next start on; a running daemon takes over the others."""

_FILES = ("tls.certfile", "tls.keyfile", "cluster.ca_file")
"""Files that the next start needs."""


def change_settings(paths: Paths, settings: Settings, changes: Mapping[str, Any]) -> tuple[Settings, list[str]]:
    """Write settings into a home's file, and return those that hold then, and the keys that wait for a restart.

    Variables of the environment outrank the file, here as at a start; blocks.

    Raises:
        InvalidSettingError: a key is unknown or a value invalid; the file is as it was.
    """
    for key in _FILES:
        if (file := changes.get(key)) and not _is_file(file):
            raise InvalidSettingError(f"{key}: {file} is not a file", hint="put it there first")
    edit_settings(paths.settings_file, changes, locks_dir=paths.locks)
    stored, applied = load_settings(paths.settings_file), settings
    waiting = []
    for key in sorted(changes):
        section, _, name = key.partition(".")
        if section in _AT_START:
            waiting.append(key)
            continue
        value = getattr(stored, section)
        if name:
            value = getattr(applied, section).model_copy(update={name: getattr(value, name)})
        applied = applied.model_copy(update={section: value})
    return applied, waiting


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
