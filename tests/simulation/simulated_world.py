"""A simulated cluster: machines with the parts of real daemons, their clocks, and the network between them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from simulated_connection import SimulatedConnection
from simulated_connection import connection_type as plain_connection_type
from simulated_network import PRESENT, MemberTransport, Network, application
from simulated_server import EPOCH, Server
from simulated_worker import SimulatedLive, SimulatedSessions, SimulatedWorker
from virtual_loop import OWN, Process, VirtualLoop

from amplifier_system.surroundings import Surroundings, enter
from amplifierd.cluster.cluster import Cluster
from amplifierd.paths import Paths
from amplifierd.server.auth.session_access import SessionAccess
from amplifierd.server.events.event_hub import EventHub
from amplifierd.server.events.published_event import PublishedEvent
from amplifierd.server.metrics import Metrics
from amplifierd.sessions.events.tree_events import Event, is_delta
from amplifierd.settings import Settings
from amplifierd.store.cursor import Cursor
from amplifierd.store.hold import Holder
from amplifierd.store.json_lines import encoded_for_others
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store_address import StoreAddress
from amplifierd.turns.durable import job_schema
from amplifierd.turns.durable.durable_turn_queue import DurableTurnQueue
from amplifierd.workers.live_sessions import LiveEvent

ADDRESS = StoreAddress.parse("postgresql://simulated/amplifier")
PATHS = Paths.from_environment(Path("/nonexistent"), environ={})
TOKEN = b"the token of a simulated cluster, which everyone may know"

_SETTINGS = Settings.model_validate({"stream": {"keepalive_seconds": 3}})
_USUAL_S, _SLOW_S = 0.001, 0.15


class Drawn(Surroundings):
    """Surroundings in which ids and chance come from a seed, and the time of day from the simulation."""

    def __init__(self, chance: Random, loop: VirtualLoop, skew_s: float = 0.0) -> None:
        self._chance, self._loop, self._skew_s = chance, loop, skew_s

    def token(self, digits: int) -> str:
        return f"{self._chance.getrandbits(4 * digits):0{digits}x}"

    @property
    def chance(self) -> Random:
        return self._chance

    def time_ns(self) -> int:
        return int((EPOCH + self._loop.time() + self._skew_s) * 1e9)


class MachineWire:
    """Carries what a process and the database send each other, in order. While the machine is cut off, it waits."""

    def __init__(self, world: World, machine: Machine, context: contextvars.Context) -> None:
        self._world, self._machine, self._context = world, machine, context
        self._arrivals: dict[tuple[SimulatedConnection, bool], float] = {}

    def carry(self, connection: SimulatedConnection, work: Callable[[], None], *, back: bool = False) -> None:
        world = self._world
        if world.is_over:
            connection.lose()
            return
        if self._machine.is_cut_off:
            self._machine.held_back.append(lambda: self.carry(connection, work, back=back))
            return
        if world.draws_loss():
            world.trace(f"{self._machine.name}: a connection breaks, {'an answer' if back else 'a request'} is lost")
            self._break(connection)
            return
        when = max(world.loop.time() + world.delay_s(), self._arrivals.get((connection, back), 0.0))
        self._arrivals[connection, back] = when
        world.loop.call_at(when, work, context=self._context if back else world.server.context)

    def _break(self, connection: SimulatedConnection) -> None:
        loop, world = self._world.loop, self._world
        if (backend := connection.backend) is not None:
            loop.call_later(world.delay_s(), backend.close, context=world.server.context)
        loop.call_later(world.delay_s(), connection.lose, context=self._context)


class Machine:
    """One machine of the cluster: what runs on it, and how it is connected."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.daemon: Daemon | None = None
        self.is_cut_off = False
        self.held_back: list[Callable[[], None]] = []
        self.skew_s = 0.0
        self.starts = 0
        self._processes: list[Process] = []
        self._connections: dict[Process, list[SimulatedConnection]] = {}

    @property
    def address(self) -> str:
        return f"http://{self.name}"

    def start(self) -> None:
        """Start a daemon, as a new process."""
        self.starts += 1
        self.daemon = Daemon(self, *self.new_process("daemon"))
        self.world.trace(f"{self.name} starts")

    def new_process(self, kind: str) -> tuple[Process, contextvars.Context]:
        process, context = Process(f"{self.name}.{kind}.{len(self._processes)}"), contextvars.copy_context()
        context.run(OWN.set, process)
        context.run(enter, Drawn(self.world.new_chance(), self.world.loop, self.skew_s))
        self._processes.append(process)
        return process, context

    def store(self, process: Process, context: contextvars.Context, program: str) -> PostgresStore:
        """Open the database for a process."""
        wire, opened = MachineWire(self.world, self, context), self._connections.setdefault(process, [])
        server = self.world.server

        class Connection(SimulatedConnection):
            @classmethod
            async def connect(cls, conninfo: str, **settings: Any) -> SimulatedConnection:
                connection = cls(server, wire)
                connection.owner = process
                opened.append(connection)
                await connection.open()
                return connection

        return PostgresStore(PATHS, ADDRESS, program=program, connection_type=Connection, loop=self.world.loop)  # type: ignore[arg-type]

    def crash(self) -> None:
        """End everything that runs here, from one step to the next."""
        self.world.trace(f"{self.name} crashes")
        self.daemon = None
        for process in self._processes:
            self.end(process)

    def end(self, process: Process) -> None:
        self.world.loop.end(process)
        self.world.network.lose(process)
        for connection in self._connections.pop(process, ()):
            connection.cut()

    def pause(self) -> None:
        self.world.trace(f"{self.name} stands still")
        for process in self._processes:
            self.world.loop.pause(process)

    def resume(self) -> None:
        self.world.trace(f"{self.name} goes on")
        for process in self._processes:
            if not process.is_gone:
                self.world.loop.resume(process)

    @property
    def is_paused(self) -> bool:
        return any(process.is_paused and not process.is_gone for process in self._processes)

    def cut_off(self) -> None:
        self.world.trace(f"{self.name} is cut off")
        self.is_cut_off = True

    def connect(self) -> None:
        self.world.trace(f"{self.name} is connected again")
        self.is_cut_off = False
        held_back, self.held_back = self.held_back, []
        for carry in held_back:
            carry()


class Daemon:
    """A daemon's parts, put together as `amplifierd` does it: its store, its cluster, its queue and its events."""

    def __init__(self, machine: Machine, process: Process, context: contextvars.Context) -> None:
        self.machine, self.world, self.process, self.context = machine, machine.world, process, context
        self.is_ready = False
        self.metrics, self.elsewhere = Metrics(), None
        self.context.run(PRESENT.set, self)
        self.world.loop.create_task(self._run(), context=context)

    async def _run(self) -> None:
        machine, name = self.machine, f"{self.machine.name}.{self.machine.starts}"
        self.store = machine.store(self.process, self.context, "daemon")
        self.events = EventHub(name)
        holder = Holder(pid=machine.starts, started=1.0, boot_id=name, host=machine.name, kind="daemon")
        self.live = SimulatedLive(self.process, self._start_worker, self.world.send)
        self.live.end_worker = machine.end
        self.sessions = SimulatedSessions(self.store, holder, self.publish)
        self.home = SimpleNamespace(sessions=self.sessions, settings=_SETTINGS)
        self.access = SessionAccess(self.sessions)  # type: ignore[arg-type] # it has what is asked of it
        self.application = application(self)
        self.cluster = Cluster(
            self.store,
            TOKEN,
            address=machine.address,
            labels={},
            load=lambda: {"turns": len(self.live.states()), "sessions": 0},
            take_over=lambda session_id: self.turns.take_over(session_id),
            on_fenced=self._abandon,
            transport=MemberTransport(self.world.network, machine),
        )
        self.turns = DurableTurnQueue(
            self.sessions,  # type: ignore[arg-type]
            self.live,  # type: ignore[arg-type]
            self.publish_live,
            lambda event: self.events.hear_end(_published(event)),
        )
        await self._patiently(self.cluster.start)
        await self._patiently(self.turns.start)
        self.is_ready = True

    def knows(self, caller: object) -> bool:
        return True

    async def _patiently(self, start: Callable[[], Any]) -> None:
        """Start something; a service manager starts a daemon again that ends because the store is away."""
        try:
            await start()
        except Exception as error:  # noqa: BLE001 - whatever it is, the process ends
            self.world.trace(f"{self.machine.name} cannot start: {error!r:.100}")
            self.world.loop.call_later(1.0, self.world.start_again, self.machine, self, context=self.world.context)
            await asyncio.get_running_loop().create_future()

    async def _abandon(self) -> None:
        self.world.trace(f"{self.machine.name} was fenced")
        await self.turns.abandon()
        await self.live.abandon()

    async def _start_worker(self) -> tuple[Process, SimulatedWorker]:
        process, context = self.machine.new_process("worker")
        store = self.machine.store(process, context, "worker")
        store.belong_to(await self.store.join())
        name = f"{self.machine.name}.{process.name}"
        holder = Holder(pid=1, started=1.0, boot_id=name, host=self.machine.name, kind="worker")

        def tell(event: Event) -> None:
            self.world.send(self.process, lambda: self.publish(event))

        return process, SimulatedWorker(store, holder, tell)

    def publish(self, event: Event) -> None:
        self.publish_live(
            LiveEvent(
                event["event"],
                event["session_id"],
                event["root_session_id"],
                Cursor.of_event(event),
                is_delta(event["event"]),
                encoded_for_others(event),
            )
        )

    def publish_live(self, event: LiveEvent) -> None:
        published = _published(event)
        self.world.on_published(self, published)
        self.events.publish(published)


def _published(event: LiveEvent) -> PublishedEvent:
    return PublishedEvent(
        event.name,
        event.envelope,
        session_id=event.session_id,
        root_id=event.root_session_id,
        cursor=event.cursor,
        is_delta=event.is_delta,
    )


class World:
    """Everything that is simulated. `chance` draws all of it."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self.loop = VirtualLoop(self.new_chance())
        self.context = contextvars.copy_context()
        self.server = Server(template=_prepared())
        self.network = Network(self)
        self.machines: list[Machine] = []
        self.log: list[str] = []
        self.loss = 0.0
        self.is_over = False
        self.slowness = 0.0
        self._wire_chance = self.new_chance()
        self.on_published: Callable[[Daemon, PublishedEvent], None] = lambda daemon, event: None
        self.on_failed_request: Callable[[Daemon, Exception], None] = lambda daemon, error: None
        database = Process("database")
        self.server.context.run(OWN.set, database)

    def new_chance(self) -> Random:
        return Random(self._chance.getrandbits(64))

    def trace(self, line: str) -> None:
        self.log.append(f"{self.loop.time():9.4f} {line}")

    def draws(self, probability: float) -> bool:
        return probability > 0 and self._wire_chance.random() < probability

    def draws_loss(self) -> bool:
        return self.draws(self.loss)

    def delay_s(self) -> float:
        """Draw how long something takes over the network, and on the database's disk."""
        draw = self._wire_chance.random()
        if draw < self.slowness:
            return self._wire_chance.random() * _SLOW_S * 4
        return _USUAL_S * (0.3 + draw)

    def send(self, process: Process, work: Callable[[], Any]) -> None:
        """Have something done in a process of the same machine."""
        context = contextvars.copy_context()
        context.run(OWN.set, process)
        self.loop.call_soon(work, context=context)

    def start_again(self, machine: Machine, daemon: Daemon) -> None:
        if machine.daemon is daemon:
            machine.crash()
            machine.start()


@cache
def _prepared() -> Server:
    """Return a database whose tables are there already."""

    async def prepare() -> Server:
        server = Server()
        loop = asyncio.get_running_loop()
        store = PostgresStore(PATHS, ADDRESS, connection_type=plain_connection_type(server), loop=loop)
        await store.check()
        await store.database.read(job_schema.prepare)
        await store.close()
        return server

    loop = VirtualLoop(Random(0))
    try:
        return loop.run_until_complete(prepare())
    finally:
        loop.close()
