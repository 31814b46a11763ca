"""One run of a simulated cluster: clients that submit turns, faults that strike at any step, and what must hold."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import warnings
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
from invariants import Invariants, Violation
from simulated_worker import announcements
from simulated_world import Daemon, Drawn, Machine, World
from virtual_loop import OWN, Process, Stuck

from amplifier_core.exceptions import AmplifierError
from amplifier_system.surroundings import enter
from amplifierd.exceptions import (
    MemberFencedError,
    NotReadyError,
    NowhereToRunError,
    SessionHeldError,
    StoreUnavailableError,
)
from amplifierd.live_sessions import TurnRequest
from amplifierd.session_store.protocol import NewSession
from amplifierd.session_store.record import SessionRecord, now
from amplifierd.turns.durable.turn_text import REFUSED
from amplifierd.turns.turn_queue import TurnKey

_FAULTS_UNTIL_S = 18.0
_LIVELY_WITHIN_S = 150.0
_PATIENCE_S = 12.0
_PASSING = (
    *(ConnectionRefusedError, MemberFencedError, NotReadyError, NowhereToRunError, SessionHeldError),
    *(StoreUnavailableError, psycopg.Error),
)
"""What a client that repeats its request may hope to be over then."""

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


@dataclass
class _Turn:
    session_id: str
    prompt: str
    key: TurnKey
    accepted: set[str] = field(default_factory=set)
    result: dict[str, Any] | None = None
    error: str | None = None


class Simulation:
    """A cluster, its clients and its faults, all drawn from a seed; with `only`, faults of these kinds alone."""

    def __init__(self, seed: int, only: Collection[str] = ()) -> None:
        self._only = only
        self.seed, self.world = seed, World(seed)
        self._chance = self.world.new_chance()
        self.invariants = Invariants(self.world.server)
        self.world.on_published = self._published
        self.world.loop.on_step = self._step
        self._turns: list[_Turn] = []
        self._violation: str | None = None
        self._faults = 0
        self._step_fault = 0.0
        self._step_chance = self.world.new_chance()
        self._clients = contextvars.copy_context()
        self._clients.run(OWN.set, Process("clients"))
        self._clients.run(enter, Drawn(self.world.new_chance(), self.world.loop))

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
        seconds = loop.time()
        self._clean_up()
        return Outcome(self.seed, self._violation, self.world.log, loop.steps, seconds, len(self._turns), self._faults)

    def _clean_up(self) -> None:
        """Let every task end, so that nothing of this run is left in the next one."""
        world, loop = self.world, self.world.loop
        world.is_over = True
        world.server.on_commit = lambda transaction: None
        world.on_published = lambda daemon, event: None
        loop.on_step = lambda process: None
        loop.gather_up()
        asyncio.events._set_running_loop(None)
        loop.close()

    def _fail(self, why: str) -> None:
        if self._violation is None:
            self._violation = why
            self.world.trace(f"VIOLATION: {why}")
        raise _Failed

    def _published(self, daemon: Daemon, event: Any) -> None:
        self.invariants.published(daemon.machine.name, event)

    def _step(self, process: Process) -> None:
        loop = self.world.loop
        if loop.failure is not None:
            failure, loop.failure = loop.failure, None
            self._fail(str(failure))
        if self._step_fault and self._step_chance.random() < self._step_fault:
            machine = next((one for one in self.world.machines if process.name.startswith(f"{one.name}.")), None)
            if machine is not None and machine.daemon is not None and not machine.is_paused:
                self._strike(machine, self._step_chance, self._step_chance.choice((self._crash, self._pause)))

    # --- the run

    async def _run(self) -> None:
        world, chance = self.world, self._chance
        for number in range(2 + (chance.random() < 0.5)):
            machine = Machine(world, "abc"[number])
            machine.skew_s = chance.choice((0.0, 0.0, 3600.0, -3600.0, 4.0, -4.0))
            world.machines.append(machine)
            machine.start()
        await asyncio.sleep(0.5)
        sessions = [f"s{number}" for number in range(1 + chance.randrange(3))]
        for session_id in sessions:
            await self._in_client(self._create(session_id))
        clients = [self._in_client(self._client(session_id)) for session_id in sessions]
        if not self._only:
            world.loss = chance.choice((0.0, 0.0, 0.001, 0.01))
            world.slowness = chance.choice((0.0, 0.0, 0.02, 0.2))
            self._step_fault = chance.choice((0.0, 0.0002, 0.001))
        faults = asyncio.create_task(self._strike_all(chance))
        await asyncio.sleep(_FAULTS_UNTIL_S)
        faults.cancel()
        world.loss = world.slowness = self._step_fault = 0.0
        world.trace("no further faults")
        done, late = await asyncio.wait(clients, timeout=_LIVELY_WITHIN_S)
        if late:
            waiting = [turn for turn in self._turns if turn.result is None and turn.error is None]
            self._fail(f"turns have not ended: {[(turn.prompt, sorted(turn.accepted)) for turn in waiting]}")
        for client in done:
            client.result()
        self._check_end()

    def _in_client(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.world.loop.create_task(work, context=self._clients)

    def _check_end(self) -> None:
        """Every accepted turn ended once, as its client was told."""
        rows = {row["turn_id"]: row for row in self.world.server.tables["turns"]}
        for turn in self._turns:
            refused = {one for one in turn.accepted if (rows[one]["result"] or "").startswith(f'{{"{REFUSED}":')}
            if len(turn.accepted - refused) > 1:  # after a refusal the same key may be used again
                self._fail(f"{turn.prompt!r} was accepted as {sorted(turn.accepted)}")
            for turn_id in turn.accepted - refused:
                if rows[turn_id]["state"] != "ended":
                    self._fail(f"{turn.prompt!r} was accepted as {turn_id}, which is {rows[turn_id]['state']}")
                ran, end = (
                    self.invariants.prompts.get(turn.prompt, []),
                    self.invariants.ends.get((turn.session_id, turn_id)),
                )
                if turn.error is None and (ran != [turn_id] or end is None):
                    self._fail(f"{turn.prompt!r} has a result, stored are {ran} and {end}")
                if turn.error is not None and ran:
                    self._fail(f"{turn.prompt!r} ran, and its client was told that it never began: {turn.error}")
                if turn.result is not None and end is not None and turn.result["status"] != end["status"]:
                    self._fail(f"{turn.prompt!r} ended as {end['status']}, and its client was told {turn.result}")

    # --- clients

    async def _create(self, session_id: str) -> None:
        policy = self._chance.choice(("ask", "ask", "continue"))
        fields = {"working_dir": "/tmp", "created_at": now(), "on_takeover": policy}
        new = NewSession(SessionRecord(session_id=session_id, **fields), plan={"session": {}})

        async def create(daemon: Daemon, accept: Callable[[str], None]) -> None:
            holder = daemon.sessions.runtime.holder
            await announcements(daemon.store, daemon.publish).add(new, holder)

        await self._ask(self._chance.choice(self.world.machines), create)

    async def _client(self, session_id: str) -> None:
        """Submit turns one after the other, some before the one before has ended, until each has."""
        chance, running = self._chance, []
        for number in range(1 + chance.randrange(4)):
            await asyncio.sleep(chance.expovariate(0.5))
            key = TurnKey("client", f"{session_id} {number}", "same")
            turn = _Turn(session_id, f"prompt {number} of {session_id}", key)
            self._turns.append(turn)
            running.append(self._in_client(self._submit(turn)))
            if chance.random() < 0.6:
                await asyncio.wait(running)
        for task in running:
            await task

    async def _submit(self, turn: _Turn) -> None:
        request = TurnRequest(turn.prompt, queue=True)

        async def submit(daemon: Daemon, accept: Callable[[str], None]) -> dict[str, Any]:
            submitted = await daemon.turns.submit(turn.session_id, request, turn.key)
            accept(submitted.correlation_id)
            return await asyncio.shield(submitted.result)

        while turn.result is None and turn.error is None:
            machine = self._chance.choice(self.world.machines)
            try:
                turn.result = await self._ask(machine, submit, turn.accepted.add)
                self.world.trace(f"{turn.prompt!r} ended as {turn.result['status']}")
            except (TimeoutError, *_PASSING) as error:
                self.world.trace(f"{turn.prompt!r} at {machine.name}: {type(error).__name__} {error!s:.90}")
                await asyncio.sleep(self._chance.expovariate(2))
            except AmplifierError as error:
                turn.error = repr(error)
                self.world.trace(f"{turn.prompt!r} was refused: {error!r:.120}")

    async def _ask(
        self, machine: Machine, work: Callable[..., Any], accept: Callable[[str], None] = lambda turn_id: None
    ) -> Any:
        """Send a request to a machine, and wait for its answer."""
        world, loop = self.world, self.world.loop
        answer: asyncio.Future[Any] = loop.create_future()

        def say(what: Callable[[], None]) -> None:
            loop.call_later(world.delay_s(), what, context=self._clients)

        def settle(value: Any, error: Exception | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)

        async def carry_out(daemon: Daemon) -> None:
            try:
                value, error = await work(daemon, lambda turn_id: say(lambda: accept(turn_id))), None
            except Exception as caught:  # noqa: BLE001 - it is for the client
                value, error = None, caught
            say(lambda: settle(value, error))

        def arrive() -> None:
            daemon = machine.daemon
            if daemon is None or not daemon.is_ready:
                say(lambda: settle(None, ConnectionRefusedError()))
            else:
                loop.create_task(carry_out(daemon), context=daemon.context)

        loop.call_later(world.delay_s(), arrive, context=world.context)
        async with asyncio.timeout(_PATIENCE_S):
            return await answer

    # --- faults

    async def _strike_all(self, chance: Random) -> None:
        known = (self._crash, self._pause, self._cut_off, self._restart_database, self._hide_table)
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
