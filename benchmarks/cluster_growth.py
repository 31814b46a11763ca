"""A simulation of growth: 1,000 machines with 100,000 live sessions, what PostgreSQL has to bear, and where one ends.

What a turn costs is what `cluster.py` measures; who runs a session is decided by the product's own placement, and
members are late, fenced and taken over from in its own times. The rest is a model: people who think between two turns,
models that take their time, and servers that take so much and no more. Run it with `make bench`, or alone:

    python benchmarks/cluster_growth.py [--quick] [--check] [--machines 1000] [--sessions 100000]
"""

import argparse
import hashlib
import heapq
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor

from _harness import Figure, Report, Row, Target

from amplifierd.cluster.member_choice import choose, eligible
from amplifierd.store.postgres.database import MOST_CONNECTIONS
from amplifierd.store.postgres.members import LEASE_S, RENEWAL_S, Member
from amplifierd.store.record import SessionRecord

THINK_S, TURN_S, CALLS = 240.0, 40.0, 5.0  # a person reads and writes; a model works, with so many tool calls
COMMITS, COMMITS_PER_CALL = 12.0, 4.8  # of a turn without tools, and of each call: measured by cluster.py
KIB, KIB_PER_CALL = 30.0, 13.5  # of the database's log, likewise
TAKE_S = 0.15  # to make one session whole, on a machine that has other work
LOOK_S, AT_ONCE = 1.0, 8  # how often a member looks for dead ones, and how many sessions it takes at a time
WORKERS = 2  # processes on a machine that hold sessions, beside the daemon

CELLS = (1, 2, 5, 10, 20)
MOST_COMMITS, MOST_LOG_MIB, MOST_CONNECTED, MOST_ROWS = 10_000, 100, 1_000, 100_000
"""What one server is asked for at the most, in a second: some cores and a good disk, and nothing special."""

SOONEST_S = 10
MOST_UNEVEN = 1.5


@dataclass(frozen=True)
class Cell:
    """One PostgreSQL, and the machines and sessions that are on it."""

    machines: int
    sessions: int

    def commits(self, window_s: int, dice: random.Random) -> tuple[list[float], float]:
        """Return the commits of turns in every second of a window, and the mean log in MiB/s."""
        seconds, log_kib = Counter[int](), 0.0
        for start, end, calls in self._turns(window_s, dice):
            count = round(COMMITS + COMMITS_PER_CALL * calls)
            seconds.update(floor(start + dice.random() * (end - start)) for _ in range(count))
            inside = (min(end, window_s) - max(start, 0.0)) / (end - start)
            log_kib += (KIB + KIB_PER_CALL * calls) * inside
        return [float(seconds[second]) for second in range(window_s)], log_kib / 1024 / window_s

    def _turns(self, window_s: int, dice: random.Random) -> Iterator[tuple[float, float, int]]:
        """Yield begin, end and tool calls of every turn that a window sees; it begins in the middle of things."""
        for _ in range(self.sessions):
            is_running = dice.random() < TURN_S / (TURN_S + THINK_S)
            moment = -dice.random() * TURN_S if is_running else dice.expovariate(1 / THINK_S)
            while moment < window_s:
                length = dice.lognormvariate(0, 0.8) * TURN_S / 1.377
                if moment + length > 0:
                    yield moment, moment + length, min(int(dice.expovariate(1 / CALLS)), 40)
                moment += length + dice.expovariate(1 / THINK_S)

    @property
    def heartbeats(self) -> float:
        """The commits of members in a second: each renews its lease, and tells how busy it is."""
        return self.machines * 2 / RENEWAL_S

    @property
    def rows_read(self) -> float:
        """The rows of members that members read in a second: each looks at all of them."""
        return self.machines * self.machines / LOOK_S

    @property
    def connections(self) -> int:
        """The lease, and for the daemon and each worker as many as a process opens when it is busy."""
        return self.machines * (1 + MOST_CONNECTIONS + WORKERS * MOST_CONNECTIONS)


def cell_rows(machines: int, sessions: int, window_s: int) -> tuple[list[Row], int | None]:
    """Return what one server bears with more and more cells, and how few cells suffice."""
    rows, enough = [], None
    for cells in CELLS:
        cell = Cell(machines // cells, sessions // cells)
        seconds, log_mib = cell.commits(window_s, random.Random(cells))
        commits = max(seconds) + cell.heartbeats
        targets = [
            Target("commits", commits, MOST_COMMITS, "/s"),
            Target("log", log_mib, MOST_LOG_MIB, "MiB/s"),
            Target("connections", cell.connections, MOST_CONNECTED, ""),
            Target("members read", cell.rows_read, MOST_ROWS, "rows/s"),
        ]
        if enough is None and all(target.verdict == "met" for target in targets):
            enough = cells
        for target in targets:
            label = f"{cells} server{'s' * (cells > 1)}, {target.of}"
            asked = [target] if cells == enough else []
            rows.append(Row(label, target.unit, {"ours": Figure([target.value or 0.0])}, asked))
    return rows, enough


def cell_of(session_id: str, cells: Sequence[str]) -> str:
    """Return the cell of a session; a child, whose id begins with its parent's and a hyphen, is where that is."""
    root = session_id.partition("-")[0]
    return max(cells, key=lambda cell: hashlib.sha256(f"{cell}/{root}".encode()).digest())


def sharding_rows(sessions: int, cells: int) -> list[Row]:
    """Return how evenly session ids are spread over cells, and how many move when there is one more."""
    names = [f"cell-{number}" for number in range(cells + 1)]
    ids = [f"session_{number:032x}" for number in range(sessions)]
    before = [cell_of(session_id, names[:-1]) for session_id in ids]
    moved = sum(cell_of(session_id, names) != cell for session_id, cell in zip(ids, before, strict=True)) / sessions
    uneven = max(Counter(before).values()) / (sessions / cells)
    return [
        Row("fullest cell / mean", "×", {"ours": Figure([uneven])}, [Target("it", uneven, 1.1, "×")]),
        Row(
            "moved by one cell more",
            "%",
            {"ours": Figure([moved * 100])},
            [Target("it", moved * 100, 150 / cells, "%")],
        ),
    ]


def member(number: int, turns: int) -> Member:
    load = {"turns": turns, "sessions": turns}
    return Member(f"m{number}", "daemon", f"host{number}", 1, 1.0, "boot", None, "1", load=load)


def record(number: int) -> SessionRecord:
    return SessionRecord(session_id=f"session_{number:032x}", working_dir="/srv", created_at="2026-01-01T00:00:00Z")


Pick = Callable[[SessionRecord, Sequence[Member]], Member]


def uneven_after_burst(pick: Pick, machines: int, starts: int) -> float:
    """Return the turns of the busiest machine by the mean, after a burst in which loads were told every two seconds."""
    busy = [0] * machines
    told = [member(number, 0) for number in range(machines)]
    for number in range(starts):
        if number and number % (starts // 10) == 0:
            told = [member(index, turns) for index, turns in enumerate(busy)]
        busy[int(pick(record(number), told).member_id[1:])] += 1
    return max(busy) / (starts / machines)


def placement_rows(machines: int, starts: int) -> list[Row]:
    ours = uneven_after_burst(choose, machines, starts)
    least = uneven_after_burst(lambda session, told: eligible(session, told).members[0], machines, starts)
    members = [member(number, number % 7) for number in range(machines)]
    began = time.perf_counter()
    for number in range(200):
        choose(record(number), members)
    took_us = (time.perf_counter() - began) / 200 * 1e6
    return [
        Row(
            "busiest machine / mean",
            "×",
            {"ours": Figure([ours]), "floor": Figure([least])},
            [Target("ours", ours, MOST_UNEVEN, "×")],
        ),
        Row(f"one choice of {machines}", "µs", {"ours": Figure([took_us])}),
    ]


def takeover_seconds(machines: int, dead: int, held: int, dice: random.Random) -> list[float]:
    """Return for each session of machines that die at the same moment when it is whole again on another one."""
    looks = [dice.random() * LOOK_S for _ in range(machines - dead)]
    fenced = []
    for _ in range(dead):
        over = LEASE_S - dice.random() * RENEWAL_S
        fenced.append(min(look + LOOK_S * max(0, ceil((over - look) / LOOK_S)) for look in looks))
    left = [moment for moment in fenced for _ in range(held)]
    free = [(look, index) for index, look in enumerate(looks) for _ in range(AT_ONCE)]
    heapq.heapify(free)
    taken = []
    for moment in sorted(left):
        available, index = heapq.heappop(free)
        seen = looks[index] + LOOK_S * max(0, ceil((moment - looks[index]) / LOOK_S))
        done = max(available, seen) + dice.lognormvariate(0, 0.5) * TAKE_S
        heapq.heappush(free, (done, index))
        taken.append(done)
    return taken


def takeover_rows(machines: int, held: int, rounds: int) -> list[Row]:
    dice, rows = random.Random(1), []
    for label, dead in (("one machine dies", 1), ("a third of them dies", machines // 3)):
        found = sorted(second for _ in range(rounds) for second in takeover_seconds(machines, dead, held, dice))
        for name, value in (
            ("median", statistics.median(found)),
            ("p99", found[int(len(found) * 0.99)]),
            ("last", found[-1]),
        ):
            targets = [Target("it", value, SOONEST_S, "s")] if name == "last" else []
            rows.append(Row(f"{label}, {name}", "s", {"ours": Figure([value])}, targets))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a shorter time, and fewer rounds")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a target is missed")
    parser.add_argument("--machines", type=int, default=1_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    options = parser.parse_args()
    machines, sessions = options.machines, options.sessions
    report = Report("cluster_growth", None)
    rows, enough = cell_rows(machines, sessions, 10 if options.quick else 60)
    report.add(f"{machines:,} machines, {sessions:,} live sessions: one server of so many", rows)
    cells = enough or CELLS[-1]
    each = machines // cells
    report.add(
        f"sessions by their ids over {cells} servers", sharding_rows(sessions // (10 if options.quick else 1), cells)
    )
    report.add(
        f"a burst on the {each} machines of one server; floor: the least busy",
        placement_rows(each, 500 if options.quick else 3_000),
    )
    report.add(f"a death among {each} machines", takeover_rows(each, sessions // machines, 5 if options.quick else 100))
    return report.finish(check=options.check)


if __name__ == "__main__":
    sys.exit(main())
