"""What a session with 200 MB of events, or with a million small ones, costs: pages, streams, lists, export, import.

Each step runs in a process of its own, which prints how long it took, the first time and at best, how long it kept a
CPU at best, and how far its memory grew above what it had before. Run it in the checkout of another version as well, to
compare:

    python benchmarks/large_sessions.py [--megabytes 200 | --events 1000000] [--store postgresql://…]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from amplifierd import Home, open_home
from amplifierd.store.protocol import NewSession
from amplifierd.store.record import SessionRecord, now

MIB = 1 << 20
SIZES = (1, 1, 1, 2, 4, 8, 60)  # KiB of the data of an event, as they follow on each other
NAMES = ("tool:pre", "tool:post", "provider:request", "llm:response", "content_block:end", "execution:done")
SESSION = "large"

Run = Callable[[], object]


def event(seq: int, *, is_small: bool) -> dict[str, object]:
    text = f"{seq} some words of an answer. " * (1 if is_small else SIZES[seq % len(SIZES)] * 1024 // 32)
    fields = {"seq": seq, "epoch": 1, "ts": now(), "lvl": "INFO", "event": NAMES[seq % len(NAMES)]}
    fields |= {"session_id": SESSION, "parent_id": None}
    return {**fields, "correlation_id": f"prompt_{SESSION}_{seq // 50}", "data": {"text": text}}


async def prepare(home: Path, megabytes: int, events: int, store: str) -> int:
    """Store a session, and then its events as a holder appends them; return their number."""
    sessions = opened(home, store).sessions
    record = SessionRecord(session_id=SESSION, working_dir=str(home), created_at=now())
    plan = {"session": {"orchestrator": {"module": "loop-basic"}}}
    hold = await sessions.runtime.store.create(NewSession(record, plan), sessions.runtime.holder)
    seq = size = 0
    while seq < events if events else size < megabytes * 1_000_000:
        batch = [
            event(seq := seq + 1, is_small=bool(events)) for _ in range(min(events - seq, 5000) if events else 200)
        ]
        size += sum(len(json.dumps(one)) for one in batch)
        await sessions.runtime.store.append_events(hold, batch)
        await sessions.runtime.store.update(hold, name=f"{seq} events")
    await sessions.runtime.store.release(hold)
    await sessions.close()
    return seq


def opened(home: Path, store: str) -> Home:
    return open_home(home, offline=True, overrides={"store": store} if store else {})


def page(home: Path, store: str, *, limit: int, offset: int = 0, from_end: bool = False) -> Run:
    """Ask for a page as the daemon does when a client wants one."""
    sessions = opened(home, store).sessions
    if hasattr(sessions, "event_page"):
        from amplifier_sessions.event_page import EventPlace

        place = EventPlace(limit, offset=offset, from_end=from_end)
        return lambda: json.dumps([*sessions.event_page(SESSION, place).events])
    return lambda: json.dumps([*sessions.events(SESSION)[offset : offset + limit]])  # versions that read all events


def listed(home: Path, store: str) -> Run:
    sessions = opened(home, store).sessions
    return lambda: sessions.list(limit=20)


def stream(home: Path, store: str, after: int) -> Run:
    """Begin a stream after an event, as a client that was away does, and read what comes first."""
    from amplifierd.server.events.event_hub import EventHub
    from amplifierd.server.events.event_watch import SessionWatch
    from amplifierd.server.events.published_event import EventFilter
    from amplifierd.server.events.stored_tree import StoredTree

    stored = StoredTree(opened(home, store).sessions.runtime.store, SESSION, SESSION, EventFilter())

    async def first() -> None:
        watch = SessionWatch(EventHub("boot"), stored, SESSION, SESSION, EventFilter(), after=str(after))
        found = await anext(watch.batches(0))
        assert [one.envelope()["sequence"] for one in found][:1] == [after + 1], found[:1]
        watch.close()

    return lambda: asyncio.run(first())


def show(home: Path, store: str) -> Run:
    """Run `amplifier session show` in this process."""
    from amplifier_cli.main import main

    if store:
        os.environ["AMPLIFIERD_STORE"] = store

    def run() -> None:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            assert main(["--home", str(home), "session", "show", SESSION]) == 0

    return run


def export(home: Path, store: str) -> Run:
    sessions = opened(home, store).sessions
    return lambda: asyncio.run(sessions.export(SESSION, home / "large.amplifier-session"))


def import_(home: Path, store: str) -> Run:
    sessions = opened(home / "other", store).sessions
    return lambda: asyncio.run(sessions.import_(home / "large.amplifier-session"))


STEPS: dict[str, Callable[[Path, str, int], Run]] = {
    "first page of 10": lambda home, store, _: page(home, store, limit=10),
    "page of 100 in the middle": lambda home, store, count: page(home, store, limit=100, offset=count // 2),
    "last page of 10": lambda home, store, _: page(home, store, limit=10, from_end=True),
    "stream after the first event": lambda home, store, _: stream(home, store, 1),
    "stream after the last but 10": lambda home, store, count: stream(home, store, count - 10),
    "list of sessions": lambda home, store, _: listed(home, store),
    "amplifier session show": lambda home, store, _: show(home, store),
    "export": lambda home, store, _: export(home, store),
    "import": lambda home, store, _: import_(home, store),
}
ONCE = ("export", "import")


class Memory:
    """How far the memory of this process grows, looked at every few milliseconds."""

    def __init__(self) -> None:
        self._before = self.peak = resident()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.peak = max(self.peak, resident())
            time.sleep(0.002)

    @property
    def grown_mib(self) -> float:
        return (max(self.peak, resident()) - self._before) / MIB


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measure(step: str, home: Path, store: str, count: int) -> None:
    run = STEPS[step](home, store, count)
    memory, took, worked = Memory(), [], []
    for _ in range(1 if step in ONCE else 20):
        began, began_cpu = time.perf_counter(), time.process_time()
        run()
        took.append(1000 * (time.perf_counter() - began))
        worked.append(1000 * (time.process_time() - began_cpu))
    print(
        f"{step:28} {took[0]:10.1f} ms first {min(took):10.1f} ms {min(worked):10.1f} ms of CPU"
        f" {memory.grown_mib:10.1f} MiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--events", type=int, default=0, help="so many small ones instead")
    parser.add_argument("--store", default="")
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        measure(given.step, given.home, given.store, given.events)
        return
    with tempfile.TemporaryDirectory() as folder:
        count = asyncio.run(prepare(Path(folder), given.megabytes, given.events, given.store))
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / MIB
        print(f"{count} events; the home has {size:.0f} MiB", flush=True)
        for step in STEPS:
            own = ["--home", folder, "--step", step, "--store", given.store, "--events", str(count)]
            subprocess.run([sys.executable, __file__, *own], check=True)


if __name__ == "__main__":
    main()
