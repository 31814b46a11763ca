"""One run of a simulated cluster: clients that submit turns, faults that strike at any step, and what must hold."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import traceback
import warnings
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from invariants import Invariants, ShownStream, Violation
from simulated_clients import Clients
from simulated_worker import announcements
from simulated_world import Daemon, Drawn, Machine, World
from virtual_loop import OWN, Process, Stuck

from amplifier_system.surroundings import enter
from amplifierd.exceptions import MemberError, StoreUnavailableError
from amplifierd.store.protocol import NewSession
from amplifierd.store.record import SessionRecord, now
from amplifierd.turns.durable.turn_rows import REFUSED

_FAULTS_UNTIL_S = 10.0
_LIVELY_WITHIN_S = 150.0
_SETTLED_WITHIN_S = 60

_TABLES = ("turns", "members", "shared_values", "holds", "sessions")


@dataclass
class Outcome:
    """What came of a run: what was wrong with it, if anything, and what happened."""

    seed: int
    violation: str | None
    log: list[str]
    steps: int
    seconds: float
    turns: int = 0
    faults: int = 0


class Simulation:
    """A cluster, its clients and its faults, all drawn from a seed; with `only`, faults of these kinds alone."""

    def __init__(self, seed: int, only: Collection[str] = ()) -> None:
        self._only = only
        self.seed, self.world = seed, World(seed)
        self._chance = self.world.new_chance()
        self.invariants = Invariants(self.world.server)
        self.world.on_published = self._published
        self.world.on_failed_request = self._request_failed
        self.world.loop.on_step = self._step
        self._violation: str | None = None
        self._faults = 0
        self._step_fault = 0.0
        self._step_chance = self.world.new_chance()
        self.clients = Clients(self.world, self.world.new_chance(), ShownStream, self.invariants.stored)
        self._outside = contextvars.copy_context()
        self._outside.run(OWN.set, Process("clients"))
        self._outside.run(enter, Drawn(self.world.new_chance(), self.world.loop))

    def run(self) -> Outcome:
        loop = self.world.loop
        try:
            loop.run_until_complete(loop.create_task(self._run(), context=self.world.context))
        except (Violation, Stuck) as error:
            self._violation = self._violation or str(error) or "nothing will ever happen again"
        except _Failed:
            pass
        except Exception as error:  # noqa: BLE001 - a client saw what it must not see
            self._violation = self._violation or f"unforeseen: {error!r}"
            self.world.log += traceback.format_exception(error)
        world = self.world
        world.is_over, world.server.on_commit = True, lambda transaction: None
        world.on_published = lambda daemon, event: None
        loop.gather_up()
        return Outcome(
            self.seed, self._violation, world.log, loop.steps, loop.time(), len(self.clients.turns), self._faults
        )

    def _fail(self, why: str) -> None:
        if self._violation is None:
            self._violation = why
            self.world.trace(f"VIOLATION: {why}")
        raise _Failed

    def _published(self, daemon: Daemon, event: Any) -> None:
        self.invariants.published(daemon.machine.name, event)

    def _request_failed(self, daemon: Daemon, error: Exception) -> None:
        """Look at what ended a connection in the middle of an answer."""
        if not isinstance(error, (MemberError, StoreUnavailableError)) and not self.world.server.was_hidden:
            raise Violation(f"{daemon.machine.name} fails to answer: {error!r}") from error

    def _step(self, process: Process) -> None:
        if self._step_fault and self._step_chance.random() < self._step_fault:
            machine = next((one for one in self.world.machines if process.name.startswith(f"{one.name}.")), None)
            if machine is not None and machine.daemon is not None and not machine.is_paused:
                self._strike(machine, self._step_chance, self._step_chance.choice((self._crash, self._pause)))

    # --- the run

    async def _run(self) -> None:
        world, chance = self.world, self._chance
        for number in range(2 + (chance.random() < 0.3)):
            machine = Machine(world, "abc"[number])
            machine.skew_s = chance.choice((0.0, 0.0, 3600.0, -3600.0, 4.0, -4.0))
            world.machines.append(machine)
            machine.start()
        await asyncio.sleep(0.5)
        sessions = [f"s{number}" for number in range(1 + (chance.random() < 0.3))]
        for session_id in sessions:
            await self._in_client(self._create(session_id))
        submitting = [self._in_client(self.clients.submit_all(session_id)) for session_id in sessions]
        for session_id in sessions:
            self._in_client(self.clients.watch(session_id))
        if not self._only:
            world.loss = chance.choice((0.0, 0.0, 0.001, 0.01))
            world.slowness = chance.choice((0.0, 0.0, 0.02, 0.2))
            self._step_fault = chance.choice((0.0, 0.0002, 0.001))
        faults = asyncio.create_task(self._strike_all(chance))
        await asyncio.wait(submitting, timeout=_FAULTS_UNTIL_S)
        faults.cancel()
        world.loss = world.slowness = self._step_fault = 0.0
        world.trace("no further faults")
        _, late = await asyncio.wait(submitting, timeout=_LIVELY_WITHIN_S)
        if late:
            waiting = [turn for turn in self.clients.turns if not turn.is_over]
            self._fail(f"turns have not ended: {[(turn.prompt, sorted(turn.accepted)) for turn in waiting]}")
        await self._until_nothing(self._waiting)
        self._check_end()
        await self._until_nothing(self._unseen)

    def _in_client(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.world.loop.create_task(work, context=self._outside)
        task.add_done_callback(self._raise, context=self.world.context)
        return task

    def _raise(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _until_nothing(self, left: Callable[[], Collection[str]]) -> None:
        """Wait until nothing is left of something."""
        for _ in range(_SETTLED_WITHIN_S):
            if not left():
                return
            await asyncio.sleep(1.0)
        self._fail(f"after {_SETTLED_WITHIN_S} s there is left: {left()}")

    def _waiting(self) -> list[str]:
        """Return the turns whose ends are not noted yet, which clients were told."""
        return [row["turn_id"] for row in self.world.server.tables["turns"] if row["state"] != "ended"]

    def _unseen(self) -> list[str]:
        """Return the streams on which clients have not seen everything yet."""
        return [f"{view} {view.missing}" for view in self.clients.views if not view.is_left and view.missing]

    def _check_end(self) -> None:
        """Every accepted turn ended once, as its client was told."""
        rows = {row["turn_id"]: row for row in self.world.server.tables["turns"]}
        for turn in self.clients.turns:
            refused = {one for one in turn.accepted if (rows[one]["result"] or "").startswith(f'{{"{REFUSED}":')}
            if len(turn.accepted - refused) > 1:  # after a refusal the same key may be used again
                self._fail(f"{turn.prompt!r} was accepted as {sorted(turn.accepted)}")
            for turn_id in turn.accepted - refused:
                ran, end = (
                    self.invariants.prompts.get(turn.prompt, []),
                    self.invariants.ends.get((turn.session_id, turn_id)),
                )
                if turn.error is None and (ran != [turn_id] or end is None):
                    self._fail(f"{turn.prompt!r} has a result, stored are {ran} and {end}")
                if turn.error is not None and ran:
                    self._fail(f"{turn.prompt!r} ran, and its client was told that it never began: {turn.error}")
                if turn.result is not None and end is not None and turn.result != end["status"]:
                    self._fail(f"{turn.prompt!r} ended as {end['status']}, and its client was told {turn.result}")

    async def _create(self, session_id: str) -> None:
        policy = self._chance.choice(("ask", "ask", "continue"))
        fields = {"working_dir": "/tmp", "created_at": now(), "on_takeover": policy}
        new = NewSession(SessionRecord(session_id=session_id, **fields), plan={"session": {}})
        daemon = self._chance.choice(self.world.machines).daemon
        assert daemon is not None
        made = announcements(daemon.store, daemon.publish).add(new, daemon.sessions.runtime.holder)
        await self.world.loop.create_task(made, context=daemon.context)

    # --- faults

    async def _strike_all(self, chance: Random) -> None:
        known = (self._crash, self._pause, self._cut_off, self._part, self._restart_database, self._hide_table)
        kinds = [kind for kind in known if not self._only or kind.__name__.strip("_") in self._only]
        pace = chance.choice((0.05, 0.3, 1.0))
        while True:
            await asyncio.sleep(chance.expovariate(pace))
            self._strike(chance.choice(self.world.machines), chance, chance.choice(kinds))

    def _strike(self, machine: Machine, chance: Random, fault: Callable[[Machine, float], None]) -> None:
        self._faults += 1
        fault(machine, chance.choice((0.2, 1.0, 4.0, 9.0)) * (0.5 + chance.random()))

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        self.world.loop.call_later(seconds, work, context=self.world.context)

    def _crash(self, machine: Machine, seconds: float) -> None:
        if machine.daemon is not None:
            machine.crash()
            self._later(seconds, machine.start)

    def _pause(self, machine: Machine, seconds: float) -> None:
        if machine.daemon is not None and not machine.is_paused:
            machine.pause()
            self._later(seconds, machine.resume)

    def _cut_off(self, machine: Machine, seconds: float) -> None:
        if not machine.is_cut_off:
            machine.cut_off()
            self._later(seconds, machine.connect)

    def _part(self, machine: Machine, seconds: float) -> None:
        """Let a machine not reach another one, or the clients."""
        network, others = self.world.network, [*(one.name for one in self.world.machines), "client"]
        other = self._step_chance.choice([one for one in others if one != machine.name])
        if frozenset((machine.name, other)) not in network.parted:
            self.world.trace(f"{machine.name} does not reach {other}")
            network.part(machine.name, other)
            self._later(seconds, lambda: self._meet(machine.name, other))

    def _meet(self, one: str, other: str) -> None:
        self.world.trace(f"{one} reaches {other} again")
        self.world.network.join(one, other)

    def _restart_database(self, machine: Machine, seconds: float) -> None:
        server = self.world.server
        if server.is_up:
            self.world.trace("the database restarts")
            server.stop()
            self._later(seconds, self._database_is_back)

    def _database_is_back(self) -> None:
        self.world.trace("the database is back")
        self.world.server.is_up = True

    def _hide_table(self, machine: Machine, seconds: float) -> None:
        table, server = self._step_chance.choice(_TABLES), self.world.server
        if table not in server.hidden:
            self.world.trace(f"the table {table} is away")
            server.was_hidden = True
            server.hidden.add(table)
            self._later(min(seconds, 5.0), lambda: self._show_table(table))

    def _show_table(self, table: str) -> None:
        self.world.trace(f"the table {table} is back")
        self.world.server.hidden.discard(table)


class _Failed(Exception):
    """The run is over: it is known what is wrong."""


def simulate(seed: int, only: Collection[str] = ()) -> Outcome:
    """Run one seed. What it leaves is collected by `tidy_up`: not by chance, in the middle of another run."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Simulation(seed, only).run()
    finally:
        logging.disable(logging.NOTSET)


def tidy_up() -> None:
    """Let go of what runs left; work of theirs that never began is no mistake."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    gc.enable()
