"""What the daemon adds: creating a session, a turn, a hundred turns at once, an event, memory, and a restart.

Three sides in one run: the real daemon with its workers (`ours`), the session runtime in this process without a daemon
(`runtime`), and a bare FastAPI route on the same server (`floor`). All sessions are of the shipped profile
`foundation/offline` with a provider that answers at once, in one word; checkpoints have a benchmark of their own and
are off. The client does as little as it can. On a busy machine the clock says little, so what the CPUs did for the
daemon and its workers stands below. Run it with `make bench`, or alone; `--beside` names another checkout, with an
environment of its own (`make install`), whose daemon runs its hundred turns in the same rounds:

    python benchmarks/daemon.py [--quick] [--check] [--beside CHECKOUT]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, Target, times

import amplifierd
from amplifierd.home import Home

sys.path.append(str(REPOSITORY / "tests/stand_ins"))

from daemon_process import DaemonProcess
from plain_http import Connection

PROFILE = "foundation/offline"
SETTINGS: dict[str, Any] = {"checkpoints": {"enabled": False}}
BRIEF = {"module": "provider-mock", "config": {"mode": "canned", "responses": ["Done."], "tool_trigger": None}}
OVERRIDES = {"providers": [BRIEF]}
SESSIONS = "/api/v1/sessions"
AT_ONCE = 100
MOST_CREATE = 10
MOST_TURN = 8
MOST_AT_ONCE_MS = 150
MOST_OF_OTHER = 0.6  # of what the other checkout takes, where that is commit bf468581
MOST_READY_MS = 2_000

Timed = Callable[[], Awaitable[object]]


@contextmanager
def bare_route() -> Iterator[tuple[str, int]]:
    """Serve one route, and yield its address and its process."""
    script = Path(__file__).with_name("_bare_route.py")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


@dataclass(frozen=True)
class Side:
    """One way of doing something, and the processes that do it."""

    work: Timed
    processes: Callable[[], Iterable[int]] = tuple


class Taken(NamedTuple):
    """The ms that something took: by the clock, and on the CPUs."""

    clock: float
    cpu: float


async def in_turn(rounds: int, sides: Mapping[str, Side]) -> dict[str, list[Taken]]:
    """Let the sides do it one after the other in every round; the first round warms up."""
    samples: dict[str, list[Taken]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, side in sides.items():
            busy_ms, started = cpu_ms(side.processes()), time.perf_counter()
            await side.work()
            elapsed_ms = (time.perf_counter() - started) * 1e3
            samples[name].append(Taken(elapsed_ms, cpu_ms(side.processes()) - busy_ms))
    return {name: taken[1:] for name, taken in samples.items()}


def cpu_ms(processes: Iterable[int]) -> float:
    """Return what the CPUs have done for processes so far."""
    tasks = (task for pid in processes for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def figures_of(samples: Mapping[str, Sequence[Taken]], sides: Sequence[str], field: str) -> dict[str, Figure]:
    return {side: Figure([getattr(taken, field) for taken in samples[side]]) for side in sides if side in samples}


def rows_of(label: str, samples: Mapping[str, Sequence[Taken]]) -> list[Row]:
    """Return the rows of the daemon beside the bare route, and that of the runtime alone."""
    rows = [Row(label, "ms", figures_of(samples, ("ours", "floor"), "clock"))]
    if sys.platform == "linux":
        rows.append(Row("  on the CPUs", "ms", figures_of(samples, ("ours", "floor"), "cpu")))
    return [*rows, Row("  the runtime alone", "ms", {"ours": figures_of(samples, ("runtime",), "clock")["runtime"]})]


def with_target(rows: list[Row], target: Target) -> list[Row]:
    return [replace(rows[0], targets=[target]), *rows[1:]]


class Client:
    """A client of a daemon, with one connection for each thing that happens at the same time."""

    def __init__(self, daemon: DaemonProcess, stack: AsyncExitStack, work: Path) -> None:
        self._daemon, self._stack, self._work = daemon, stack, work
        self._processes: tuple[int, ...] = ()

    async def connection(self) -> Connection:
        return await self._stack.enter_async_context(await Connection.open(self._daemon.url, self._daemon.token))

    async def create(self, connection: Connection) -> str:
        body = {"profile_name": PROFILE, "working_dir": str(self._work), "settings_overrides": OVERRIDES}
        return str((await connection.post(SESSIONS, body)).json()["session_id"])

    async def run(self, connection: Connection, session_id: str) -> None:
        answer = (await connection.post(f"{SESSIONS}/{session_id}/execute", {"prompt": "Hello"})).json()
        if answer["status"] != "completed":
            raise MeasurementFailed(f"a turn ended with {answer}")

    async def learn_processes(self, connection: Connection) -> None:
        """Look which workers there are."""
        workers = (await connection.get("/api/v1/workers")).json()["workers"]
        self._processes = (self._daemon.pid, *(one["pid"] for one in workers))

    def processes(self) -> Iterable[int]:
        """Return the daemon and its workers, as they were when they were looked at last."""
        return self._processes

    async def workers(self, connection: Connection) -> list[dict[str, Any]]:
        """Return the workers, when each has said how much memory it has."""
        await asyncio.sleep(1.2)
        workers: list[dict[str, Any]] = (await connection.get("/api/v1/workers")).json()["workers"]
        return workers


class Route:
    """The bare route, which is called as the daemon is."""

    def __init__(self, address: str, pid: int, stack: AsyncExitStack) -> None:
        self._address, self._pid, self._stack = address, pid, stack

    async def connection(self) -> Connection:
        return await self._stack.enter_async_context(await Connection.open(self._address))

    async def ask(self, connection: Connection) -> None:
        (await connection.post("/route", {"prompt": "Hello"})).json()

    def processes(self) -> Iterable[int]:
        return (self._pid,)


class Runtime:
    """The session runtime in this process."""

    def __init__(self, home: Home, work: Path) -> None:
        self._home, self._work = home, work

    async def create(self) -> None:
        await self._home.sessions.create(PROFILE, working_dir=self._work, overrides=OVERRIDES)

    def open(self) -> Any:
        return self._home.sessions.open(PROFILE, working_dir=self._work, overrides=OVERRIDES)


async def one_by_one(report: Report, client: Client, runtime: Runtime, route: Route, rounds: int) -> str:
    """Measure creating a session, and a turn; returns the session that has run them."""
    own = await client.connection()
    session_id = await client.create(own)
    await client.run(own, session_id)
    await client.learn_processes(own)
    floor = await route.connection()
    bare = Side(lambda: route.ask(floor), route.processes)
    sides = {"floor": bare, "ours": Side(lambda: client.create(own), client.processes), "runtime": Side(runtime.create)}
    samples = await in_turn(rounds, sides)
    ratio = times(figures_of(samples, ("ours", "floor"), "clock"), "ours", "floor")
    rows = with_target(rows_of("create a session", samples), Target("ours/floor", ratio, MOST_CREATE, "×"))
    async with runtime.open() as session:
        sides = {
            "floor": bare,
            "ours": Side(lambda: client.run(own, session_id), client.processes),
            "runtime": Side(lambda: session.execute("Hello")),
        }
        samples = await in_turn(rounds, sides)
    ratio = times(figures_of(samples, ("ours", "floor"), "clock"), "ours", "floor")
    rows += with_target(rows_of("a turn without tools", samples), Target("ours/floor", ratio, MOST_TURN, "×"))
    report.add("one request after the other", rows)
    return session_id


async def many_turns(client: Client) -> Side:
    """Make many sessions, run a turn on each, and return what runs the next ones."""
    connections = [await client.connection() for _ in range(AT_ONCE)]
    pairs = [(connection, await client.create(connection)) for connection in connections]
    await asyncio.gather(*(client.run(*pair) for pair in pairs))
    await client.learn_processes(connections[0])
    return Side(lambda: asyncio.gather(*(client.run(*pair) for pair in pairs)), client.processes)


async def at_once(
    report: Report, client: Client, other: Client | None, runtime: Runtime, route: Route, rounds: int
) -> None:
    """Measure many turns at the same time, beside as many requests to the bare route, and beside another daemon."""
    floor = [await route.connection() for _ in range(AT_ONCE)]
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(runtime.open()) for _ in range(AT_ONCE)]
        sides = {
            "floor": Side(lambda: asyncio.gather(*map(route.ask, floor)), route.processes),
            "ours": await many_turns(client),
            "runtime": Side(lambda: asyncio.gather(*(session.execute("Hello") for session in opened))),
        }
        if other is not None:
            sides["peer"] = await many_turns(other)
        samples = await in_turn(rounds, sides)
    best = Target("best", figures_of(samples, ("ours",), "clock")["ours"].best, MOST_AT_ONCE_MS, "ms")
    rows = with_target(rows_of(f"{AT_ONCE} turns, the last one done", samples), best)
    if other is not None:
        for field, label in (("clock", "  beside the other checkout"), ("cpu", "  on the CPUs")):
            figures = figures_of(samples, ("ours", "peer"), field)
            share = Target("ours/peer", times(figures, "ours", "peer"), MOST_OF_OTHER, "×")
            rows.append(Row(label, "ms", figures, [share] if field == "clock" else []))
    report.add("at the same time", rows)


async def events(report: Report, client: Client, session_id: str, rounds: int) -> None:
    """Measure how old events are when a client has them: their own moment is that at which they happened."""
    own, watching = await client.connection(), await client.connection()
    arrived: list[tuple[float, bytes]] = []
    begun = asyncio.Event()

    async def watch() -> None:
        async for chunk in watching.chunks(f"{SESSIONS}/{session_id}/stream"):
            arrived.append((time.time(), chunk))
            begun.set()

    task = asyncio.create_task(watch())
    await asyncio.wait_for(begun.wait(), 60)
    for _ in range(rounds):
        await client.run(own, session_id)
        await asyncio.sleep(0.05)
    task.cancel()
    ages = sorted(
        (moment - datetime.fromisoformat(json.loads(line[6:])["timestamp"]).timestamp()) * 1e3
        for moment, chunk in arrived[2:]
        for line in chunk.split(b"\n")
        if line.startswith(b"data: ")
    )
    report.add(
        "an event from the worker to a client",
        [
            Row(f"median of {len(ages)} events", "ms", {"ours": Figure([ages[len(ages) // 2]])}),
            Row("99th percentile", "ms", {"ours": Figure([quantiles(ages, n=100)[98]])}),
        ],
    )


async def memory(report: Report, client: Client, count: int) -> None:
    """Measure what further sessions add to the workers that have them, and to the daemon."""
    own = await client.connection()
    sessions = [await client.create(own) for _ in range(count)]
    before = await client.workers(own)
    for session_id in sessions:
        (await own.post(f"{SESSIONS}/{session_id}/resume")).json()
    after = await client.workers(own)
    taken = sum(one["rss_bytes"] for one in after) - sum(one["rss_bytes"] for one in before)
    rows = [Row(f"each of {count} loaded sessions", "KiB", {"ours": Figure([taken / count / 1024])})]
    if len(before) != len(after):
        rows[0] = Row(f"{rows[0].label}, a worker more", rows[0].unit, rows[0].figures)
    serving = [one["rss_bytes"] for one in after if one["status"] == "ready"]
    rows.append(Row(f"the largest of {len(serving)} at work", "MiB", {"ours": Figure([max(serving) / (1 << 20)])}))
    report.add("memory", rows)


async def restart(report: Report, home_dir: Path, work: Path, count: int, rounds: int) -> None:
    """Measure how long a daemon takes to be ready, with sessions on the disk that have each run a turn."""
    home = amplifierd.open_home(home_dir, offline=True, overrides=SETTINGS)
    await home.profiles.compile(PROFILE)
    async with Runtime(home, work).open() as session:
        await session.execute("Hello")
        session_id = session.session_id
    for number in range(count - 1):
        await home.sessions.clone(session_id, name=f"Copy {number}")
    await home.sessions.close()
    daemon = DaemonProcess(home_dir, SETTINGS)
    taken, empty = [], []
    bare = DaemonProcess(home_dir.parent / "empty", SETTINGS)
    for _ in range(rounds + 1):
        taken.append(started(daemon))
        empty.append(started(bare))
    samples = {"ours": taken[1:], "floor": empty[1:]}
    rows = [Row(f"{count:,} sessions on the disk", "ms", figures_of(samples, ("ours", "floor"), "clock"))]
    rows.append(Row("  on the CPUs", "ms", figures_of(samples, ("ours", "floor"), "cpu")))
    best = Target("best", rows[0].figures["ours"].best, MOST_READY_MS, "ms")
    report.add("start of the daemon until it is ready; floor: an empty home", with_target(rows, best))


def started(daemon: DaemonProcess) -> Taken:
    """Start a daemon and end it as a crash would; returns what it took to be ready."""
    daemon.start()
    taken = Taken(daemon.ready_s * 1e3, cpu_ms([daemon.pid]))
    daemon.kill()
    return taken


async def measure(report: Report, folder: Path, beside: Path | None, *, rounds: int, loaded: int, stored: int) -> None:
    work = folder / "work"
    work.mkdir()
    with ExitStack() as processes:
        address, pid = processes.enter_context(bare_route())
        daemon = processes.enter_context(DaemonProcess(folder / "home", SETTINGS))
        home = amplifierd.open_home(folder / "runtime", offline=True, overrides=SETTINGS)
        await home.profiles.compile(PROFILE)
        async with AsyncExitStack() as stack:
            client, runtime, route = Client(daemon, stack, work), Runtime(home, work), Route(address, pid, stack)
            session_id = await one_by_one(report, client, runtime, route, rounds)
            other: Client | None = None
            if beside is not None:
                python = str(beside / ".venv/bin/python")
                another = processes.enter_context(DaemonProcess(folder / "other", SETTINGS, python=python))
                other = Client(another, stack, work)
            await at_once(report, client, other, runtime, route, max(3, rounds // 5))
            await events(report, client, session_id, rounds)
            await memory(report, client, loaded)
        await home.sessions.close()
    await restart(report, folder / "many", work, stored, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the daemon adds to the session runtime.")
    parser.add_argument("--quick", action="store_true", help="measure for less than a minute, with fewer sessions")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="run the turns at once on its daemon too")
    given = parser.parse_args()
    rounds, loaded, stored = (20, 50, 100) if given.quick else (100, 500, 1_000)
    report = Report("daemon", peer=None)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(report, Path(folder), given.beside, rounds=rounds, loaded=loaded, stored=stored))
    return report.finish(check=given.check)


if __name__ == "__main__":
    sys.exit(main())
