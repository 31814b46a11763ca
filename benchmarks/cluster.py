"""What several machines on one PostgreSQL cost and bring: turns, appends, members, and what follows a death.

PostgreSQL is a real server of its own, with everything on its disk before it answers. In the table *ours* are sessions
in PostgreSQL and *floor* the same in files, in the same run. Run it with `make bench`, or alone:

    python benchmarks/cluster.py [--quick] [--check] [turn|append|members|takeover …]
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _cluster_members import AtWork, Members
from _cluster_server import Server, running_server
from _harness import Figure, Report, Row, Target

import amplifierd
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.protocol import NewSession, SessionStore
from amplifierd.store.record import SessionRecord
from amplifierd.store_address import StoreAddress

CALLS = (0, 3)
WRITERS = 32
MEMBERS, SESSIONS, RUNNING = 3, 24, 12
MOST_TURN_RATIO = 10
LEAST_GROUP_RATIO = 2
MOST_TAKEOVER_S = 10
KIB = 1024
PROMPT = "What is in my notes?"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    turns: int
    appends: int
    clusters: int
    seconds: float
    deaths: int


FULL, QUICK = Size(5, 20, 100, 2, 10.0, 6), Size(2, 5, 20, 1, 3.0, 1)


def plan(calls: int, turns: int) -> dict[str, Any]:
    """Return a plan whose model asks for a file so many times in every turn, then answers."""
    ask = {"tool_calls": [{"name": "read_file", "arguments": {"file_path": "notes.md"}}]}
    script = [*[ask] * calls, "Done."] * turns
    return {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": {"script": script, "tool_trigger": None}}],
        "tools": [{"module": "tool-filesystem"}],
        "hooks": [],
        "agents": {},
    }


def open_home(folder: Path, store: str) -> Home:
    return amplifierd.open_home(folder, offline=True, overrides={"store": store, "checkpoints": {"enabled": False}})


class TurnCosts:
    """Turns of one session after the other, in files and in PostgreSQL."""

    def __init__(self, folder: Path, server: Server, size: Size) -> None:
        self._folder, self._server, self._size = folder, server, size
        self._work, self._store = folder / "work", server.new_store()
        self._work.mkdir()
        (self._work / "notes.md").write_text("# Notes\n\n- buy milk\n" * 20)
        self._homes = {
            "ours": open_home(folder / "postgres", self._store),
            "floor": open_home(folder / "files", "files"),
        }

    async def rows(self) -> list[Row]:
        rows = []
        for calls in CALLS:
            found: dict[str, list[float]] = {side: [] for side in self._homes}
            for _ in range(self._size.rounds):
                for side, home in self._homes.items():
                    found[side].append(await self._turns(home, calls))
            figures = {side: Figure(samples) for side, samples in found.items()}
            ratio = figures["ours"].best / figures["floor"].best
            rows.append(
                Row(f"turn, {calls} tool calls", "ms", figures, [Target("ours/floor", ratio, MOST_TURN_RATIO, "×")])
            )
            rows += await self._counted(calls)
        for home in self._homes.values():
            await home.sessions.close()
        return rows

    async def _turns(self, home: Home, calls: int) -> float:
        """Return the ms of a turn."""
        turns = self._size.turns
        async with home.sessions.open(plan=plan(calls, turns + 1), working_dir=self._work) as session:
            await session.execute("Warm up.")
            started = time.perf_counter()
            for _ in range(turns):
                await session.execute(PROMPT)
            return (time.perf_counter() - started) / turns * 1e3

    async def _counted(self, calls: int) -> list[Row]:
        """Return what turns did to the database; opening the session and renewing a lease is left out."""
        few, many = self._size.turns, self._size.turns * 3
        asked = (await self._transactions(calls, many) - await self._transactions(calls, few)) / (many - few)
        async with self._homes["ours"].sessions.open(plan=plan(calls, few), working_dir=self._work) as session:
            before = await asyncio.to_thread(self._server.count)
            for _ in range(few):
                await session.execute(PROMPT)
            after = await asyncio.to_thread(self._server.count)
        found = {
            "commits": ("", (after.commits - before.commits) / few),
            "transactions, with reads": ("", asked),
            "log": ("KiB", (after.log_bytes - before.log_bytes) / few / KIB),
            "connections at a time": ("", float(after.connections)),
        }
        return [Row(f"  {name}", unit, {"ours": Figure([value])}) for name, (unit, value) in found.items()]

    async def _transactions(self, calls: int, turns: int) -> int:
        """Return how many transactions some turns take, from opening a home to closing it."""
        before = await asyncio.to_thread(self._server.transactions)
        home = open_home(self._folder / "counted", self._store)
        async with home.sessions.open(plan=plan(calls, turns), working_dir=self._work) as session:
            for _ in range(turns):
                await session.execute(PROMPT)
        await home.sessions.close()
        return await asyncio.to_thread(self._server.transactions) - before


def event(number: int) -> dict[str, Any]:
    return {
        "seq": number,
        "ts": "2026-01-01T00:00:00Z",
        "lvl": "info",
        "event": "tool:pre",
        "session_id": "session",
        "parent_id": None,
        "correlation_id": "prompt_session_1",
        "data": {"tool_name": "read_file", "tool_call_id": f"call_{number}", "tool_input": {"path": "src/main.py"}},
    }


async def appends_per_second(store: SessionStore, writers: int, appends: int) -> float:
    """Let sessions append at the same time, each waiting until what it appended is on the disk."""
    me = Holder.of_this_process()
    records = [
        SessionRecord(session_id=f"s{n}", working_dir="/", created_at="2026-01-01T00:00:00Z") for n in range(writers)
    ]
    holds = [await store.create(NewSession(record, {}), me) for record in records]

    async def append(hold: Any) -> None:
        for number in range(appends):
            await store.append_events(hold, [event(number)], lasting=True)

    started = time.perf_counter()
    await asyncio.gather(*map(append, holds))
    elapsed_s = time.perf_counter() - started
    for hold in holds:
        await store.delete(hold)
    await store.close()
    return writers * appends / elapsed_s


async def append_rows(folder: Path, server: Server, size: Size) -> list[Row]:
    def postgres(together: int) -> SessionStore:
        paths = Paths.from_environment(folder / "none", environ={})
        return PostgresStore(paths, StoreAddress.parse(server.new_store()), together=together)

    def files() -> SessionStore:
        return FileStore(Paths.from_environment(folder / f"files-{uuid.uuid4().hex}", environ={}))

    kinds: Mapping[str, Callable[[], SessionStore]] = {
        "postgres": lambda: postgres(256),
        "alone": lambda: postgres(1),
        "files": files,
    }
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(size.rounds):
        for name, make in kinds.items():
            for writers in (1, WRITERS):
                rate = await appends_per_second(make(), writers, size.appends)
                found.setdefault((name, writers), []).append(rate)
    best = {key: fastest(samples) for key, samples in found.items()}
    gain = best["postgres", WRITERS].best / best["alone", WRITERS].best
    goal = Target("with group commit / without", gain, LEAST_GROUP_RATIO, "×", at_least=True)
    return [
        Row("one session", "/s", {"ours": best["postgres", 1], "floor": best["files", 1]}),
        Row(f"{WRITERS} sessions", "/s", {"ours": best["postgres", WRITERS], "floor": best["files", WRITERS]}, [goal]),
        Row(f"{WRITERS} sessions, each alone", "/s", {"ours": best["alone", WRITERS]}),
    ]


def fastest(rates: Sequence[float]) -> Figure:
    """Return the best of several rates: what disturbs a round only makes it slower."""
    return Figure([max(rates)])


async def turn_rows(folder: Path, server: Server, size: Size) -> list[Row]:
    return await TurnCosts(folder, server, size).rows()


async def member_rows(folder: Path, server: Server, size: Size) -> list[Row]:
    found, near, far = {1: AtWork(), MEMBERS: AtWork()}, [], []
    for number in range(size.clusters):
        for count, work in found.items():
            place = folder / f"{count}-{number}"
            place.mkdir()
            async with Members(place, server, count).running() as members:
                await work.measure(members, SESSIONS, size.seconds)
                if count > 1:
                    near.append(await members.turn_ms(0, 0, size.turns))
                    far.append(await members.turn_ms(0, 1, size.turns))
    rows = []
    for count, work in found.items():
        rows += [
            Row(f"{count} member{'s' * (count > 1)}, turns", "/s", {"ours": fastest(work.rates)}),
            Row("  commits of a turn", "", {"ours": Figure(work.commits)}),
            Row("  log of a turn", "KiB", {"ours": Figure(work.log_kib)}),
            Row("  connections of a member", "", {"ours": Figure(work.connections)}),
            Row("  commits of one at rest", "/s", {"ours": Figure(work.resting)}),
        ]
    return [
        *rows,
        Row("turn at its holder", "ms", {"ours": Figure(near)}),
        Row("turn through another member", "ms", {"ours": Figure(far)}),
    ]


async def takeover_rows(folder: Path, server: Server, size: Size) -> list[Row]:
    async with Members(folder, server, MEMBERS).running() as members:
        found = [s for death in range(size.deaths) for s in await members.takeovers(RUNNING, death % MEMBERS)]
    tenths = statistics.quantiles(found, n=10)
    last = max(found)
    return [
        Row("median", "s", {"ours": Figure([statistics.median(found)])}),
        Row("9 of 10 within", "s", {"ours": Figure([tenths[-1]])}),
        Row(f"last of {len(found)}", "s", {"ours": Figure([last])}, [Target("it", last, MOST_TAKEOVER_S, "s")]),
    ]


Measure = Callable[[Path, Server, Size], Coroutine[Any, Any, list[Row]]]

PARTS: Mapping[str, tuple[str, Measure]] = {
    "turn": ("a turn in PostgreSQL, beside files", turn_rows),
    "append": ("appends on the disk, in a second", append_rows),
    "members": (f"{SESSIONS} sessions at work on real daemons", member_rows),
    "takeover": (
        f"kill -9 of a daemon among {RUNNING} turns, until its own are whole on another",
        takeover_rows,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="by default all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a target is missed")
    options = parser.parse_args()
    report = Report("cluster", None)
    with running_server() as server, tempfile.TemporaryDirectory(prefix="bench-cluster-") as name:
        for part in options.parts or PARTS:
            title, measure = PARTS[part]
            folder = Path(name, part)
            folder.mkdir()
            report.add(title, asyncio.run(measure(folder, server, QUICK if options.quick else FULL)))
    return report.finish(check=options.check)


if __name__ == "__main__":
    sys.exit(main())
