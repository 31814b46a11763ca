"""What every session of a home runs on."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from amplifier_core.boundary import TaskBoundary
from amplifier_system.tasks import start_task
from amplifierd.agreements import Agreements
from amplifierd.paths import Paths
from amplifierd.plans.foreign_values import ForeignValues
from amplifierd.plans.injection import variables
from amplifierd.sessions.events.announcements import Announcements
from amplifierd.sessions.layers.stoppable_calls import Patience
from amplifierd.settings import Settings
from amplifierd.store.protocol import Holder, SessionStore

from .secret_values import SecretValues
from .session_setup import SessionSetup, SetupFinder
from .working_place import Machine


@dataclass(frozen=True)
class Runtime:
    """The parts that runners share; `find_key` gives the stored key of a provider module, or a kept secret."""

    store: SessionStore
    holder: Holder
    paths: Paths
    settings: Settings
    setups: SetupFinder
    environment: dict[str, str]
    find_key: Callable[[str], str | None]
    secrets: SecretValues
    announcements: Announcements
    machine: Machine
    loaded: LoadedSessions
    patience: Patience = field(default_factory=Patience)

    def foreign_values(self, setup: SessionSetup) -> ForeignValues:
        """Return what decides about the parts of a session's plan that come from elsewhere."""
        find = variables(self.environment, self.find_key)
        return ForeignValues(setup.place_of, Agreements(self.paths), find, self.find_key, resolver=setup.resolver)

    def learn(self, variables: Mapping[str, str]) -> None:
        """Take in secret variables of the environment that a plan needs; none of their values is stored."""
        self.environment.update(variables)
        self.secrets.add(*variables.values())


# Which sessions have their modules loaded; those that have been idle for long, or are too many, are unloaded.


logger = logging.getLogger(__name__)


class Loadable(Protocol):
    """A session that can be without its modules until it is needed again."""

    async def unload(self) -> None:
        """End the modules, unless something is at work."""
        ...


class LoadedSessions:
    """Unloads sessions that were idle for `idle_s`; while more than `most` are loaded, those idle longest at once."""

    def __init__(self, *, most: int, idle_s: float) -> None:
        self._most, self._idle_s = most, idle_s
        self._idle_since: OrderedDict[Loadable, float] = OrderedDict()
        self._working: set[Loadable] = set()
        self._unloading: set[asyncio.Task[None]] = set()
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def works(self, session: Loadable) -> None:
        """Take note of a session that begins to work, or is loaded for it."""
        self._idle_since.pop(session, None)
        self._working.add(session)
        self._unload_surplus()

    def rests(self, session: Loadable) -> None:
        """Take note of a loaded session that has nothing to do."""
        self._working.discard(session)
        self._idle_since.pop(session, None)
        self._idle_since[session] = asyncio.get_running_loop().time()
        self._unload_surplus()
        self._watch()

    def forget(self, session: Loadable) -> None:
        """Take note of a session whose modules are not loaded any more."""
        self._working.discard(session)
        self._idle_since.pop(session, None)

    def _unload_surplus(self) -> None:
        while self._idle_since and len(self._idle_since) + len(self._working) > self._most:
            self._unload_oldest()

    def _unload_overdue(self) -> None:
        self._timer = None
        overdue = asyncio.get_running_loop().time() - self._idle_s
        while self._idle_since and next(iter(self._idle_since.values())) <= overdue:
            self._unload_oldest()
        self._watch()

    def _unload_oldest(self) -> None:
        session, _ = self._idle_since.popitem(last=False)
        task = start_task(_unload(session))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    def _watch(self) -> None:
        """Have one timer, for the session that is idle longest."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer[0] is loop:
            return
        if self._idle_since:
            due = next(iter(self._idle_since.values())) + self._idle_s
            self._timer = loop, loop.call_at(due, self._unload_overdue)


async def _unload(session: Loadable) -> None:
    with TaskBoundary(logger, "a session that is idle could not be unloaded: %s"):
        await session.unload()
