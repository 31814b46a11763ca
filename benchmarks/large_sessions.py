"""What a session with 200 MB of events costs: a page of its events, an export and an import.

Each step runs in a process of its own, which prints how long it took and how far its memory grew above what it had
before. Run it in the checkout of another version as well, to compare:

    python benchmarks/large_sessions.py [--megabytes 200] [--store postgresql://…]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from amplifierd import Home, open_home
from amplifierd.session_store.protocol import NewSession
from amplifierd.session_store.record import SessionRecord, now

MIB = 1 << 20
SIZES = (1, 1, 1, 2, 4, 8, 60)  # KiB of the data of an event, as they follow on each other
NAMES = ("tool:pre", "tool:post", "provider:request", "llm:response", "content_block:end", "execution:done")
SESSION = "large"

Run = Callable[[], object]


def event(seq: int) -> dict[str, object]:
    text = f"{seq} some words of an answer. " * (SIZES[seq % len(SIZES)] * 1024 // 32)
    fields = {"seq": seq, "ts": now(), "lvl": "INFO", "event": NAMES[seq % len(NAMES)], "session_id": SESSION}
    return {**fields, "parent_id": None, "correlation_id": f"prompt_{SESSION}_{seq // 50}", "data": {"text": text}}


async def prepare(home: Path, megabytes: int, store: str) -> None:
    """Store a session, and then its events as a holder appends them."""
    sessions = opened(home, store).sessions
    record = SessionRecord(session_id=SESSION, working_dir=str(home), created_at=now())
    plan = {"session": {"orchestrator": {"module": "loop-basic"}}}
    hold = await sessions.runtime.store.create(NewSession(record, plan), sessions.runtime.holder)
    seq = size = 0
    while size < megabytes * 1_000_000:
        batch = [event(seq := seq + 1) for _ in range(200)]
        size += sum(len(json.dumps(one)) for one in batch)
        await sessions.runtime.store.append_events(hold, batch)
        await sessions.runtime.store.update(hold, name=f"{seq} events")
    await sessions.runtime.store.release(hold)
    await sessions.close()


def opened(home: Path, store: str) -> Home:
    return open_home(home, offline=True, overrides={"store": store} if store else {})


def page(home: Path, store: str, *, limit: int, offset: int) -> Run:
    """Ask for a page as the daemon does when a client wants one."""
    sessions = opened(home, store).sessions
    if hasattr(sessions, "event_page"):
        from amplifier_sessions.event_page import EventPlace

        return lambda: json.dumps([*sessions.event_page(SESSION, EventPlace(limit, offset=offset)).events])
    return lambda: json.dumps([*sessions.events(SESSION)[offset : offset + limit]])  # versions that read all events


def export(home: Path, store: str) -> Run:
    sessions = opened(home, store).sessions
    return lambda: asyncio.run(sessions.export(SESSION, home / "large.amplifier-session"))


def import_(home: Path, store: str) -> Run:
    sessions = opened(home / "other", store).sessions
    return lambda: asyncio.run(sessions.import_(home / "large.amplifier-session"))


STEPS: dict[str, Callable[[Path, str], Run]] = {
    "first page of 10": lambda home, store: page(home, store, limit=10, offset=0),
    "page of 100 in the middle": lambda home, store: page(home, store, limit=100, offset=5000),
    "export": export,
    "import": import_,
}


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


def measure(step: str, home: Path, store: str) -> None:
    run = STEPS[step](home, store)
    memory, took = Memory(), []
    for _ in range(20 if "page" in step else 1):
        began = time.perf_counter()
        run()
        took.append(1000 * (time.perf_counter() - began))
    print(f"{step:28} {min(took):10.1f} ms {memory.grown_mib:10.1f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--store", default="")
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        measure(given.step, given.home, given.store)
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(prepare(Path(folder), given.megabytes, given.store))
        for step in STEPS:
            own = ["--home", folder, "--step", step, "--store", given.store]
            subprocess.run([sys.executable, __file__, *own], check=True)


if __name__ == "__main__":
    main()
