"""What it costs to keep sessions: an append under a hold, and lists and searches among very many.

The floor of an append is one `json.dumps` and one write. Run it with `make bench`, or alone:

    python benchmarks/session_store.py [--quick] [--check]
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from _harness import Figure, Report, Row, Target, in_turn

from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.json_lines import encoded_lines
from amplifierd.store.protocol import NewSession, SessionQuery
from amplifierd.store.record import SessionRecord
from amplifierd.store.session_files import metadata_text

BEGINNING = "2026-01-01T00:00:00Z"
WORDS = [f"word{number}" for number in range(20_000)]
COMMON = "common"
RARE = "needle"
MESSAGES = 4

PAGES = {
    "page": SessionQuery(),
    "page, offset 50,000": SessionQuery(offset=50_000),
    "page of a profile": SessionQuery(profile_name="foundation/p3"),
    "page of a status and a profile": SessionQuery(status="completed", profile_name="foundation/p3"),
    "page of a tag": SessionQuery(tag="tag5"),
    "page of roots, by name": SessionQuery(roots_only=True, sort="name"),
}
SEARCHES = {"rare word": RARE, "word in all": COMMON, "word in all and a rare one": f"{COMMON} {RARE}"}


def event(number: int) -> dict[str, Any]:
    return {
        "seq": number,
        "ts": BEGINNING,
        "lvl": "info",
        "event": "tool:pre",
        "session_id": "session",
        "parent_id": None,
        "correlation_id": "prompt_session_1",
        "data": {"tool_name": "read_file", "tool_call_id": f"call_{number}", "tool_input": {"path": "src/main.py"}},
    }


def bare_writes(folder: Path, count: int) -> float:
    """Return the µs of a record that is only encoded and written."""
    descriptor = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    started = time.perf_counter()
    for number in range(count):
        os.write(descriptor, json.dumps(event(number)).encode() + b"\n")
    elapsed_s = time.perf_counter() - started
    os.close(descriptor)
    return elapsed_s / count * 1e6


def appends(folder: Path, count: int, *, lasting: bool = False) -> float:
    """Return the µs of an event appended under a hold."""

    async def run() -> float:
        store = FileStore(Paths.from_environment(folder, environ={}))
        record = SessionRecord(session_id="session", working_dir="/", created_at=BEGINNING)
        hold = await store.create(NewSession(record, {}), Holder.of_this_process())
        started = time.perf_counter()
        for number in range(count):
            await store.append_events(hold, [event(number)], lasting=lasting)
        elapsed_s = time.perf_counter() - started
        await store.delete(hold)
        await store.close()
        return elapsed_s / count * 1e6

    return asyncio.run(run())


def write_sessions(sessions: Path, count: int) -> None:
    """Write the directories of sessions, without waiting for the disk as a store would."""
    choose = random.Random(1)
    for number in range(count):
        session_id = f"session_{number:032x}"
        record = SessionRecord(
            session_id=session_id,
            name=f"session about {choose.choice(WORDS)}",
            status=choose.choice(("active", "completed")),
            profile_name=f"foundation/p{choose.randrange(10)}",
            working_dir=f"/srv/project{choose.randrange(50)}",
            created_at=BEGINNING,
            last_activity_at=f"2026-{choose.randrange(1, 13):02}-{choose.randrange(1, 29):02}T00:00:00Z",
            tags=[f"tag{choose.randrange(10)}"],
            message_count=MESSAGES,
        )
        texts = [f"{COMMON} {' '.join(choose.choices(WORDS, k=40))}" for _ in range(MESSAGES)]
        if number % (count // 10 or 1) == 7:
            texts[1] += f" {RARE}"
        messages = [
            {"id": f"m{turn}", "role": "user", "content": text, "turn": turn} for turn, text in enumerate(texts, 1)
        ]
        directory = sessions / session_id
        directory.mkdir(parents=True)
        (directory / "metadata.json").write_bytes(metadata_text(record))
        (directory / "transcript.jsonl").write_bytes(encoded_lines(messages))


def timed(work: Callable[[], Awaitable[object]], rounds: int) -> Iterator[Callable[[], Awaitable[float]]]:
    async def once() -> float:
        started = time.perf_counter()
        await work()
        return (time.perf_counter() - started) * 1e3

    for _ in range(rounds):
        yield once


class Measurement:
    """One run: how many rounds, appends and sessions."""

    def __init__(self, report: Report, folder: Path, rounds: int, records: int, sessions: int) -> None:
        self.report, self.folder = report, folder
        self.rounds, self.records, self.sessions = rounds, records, sessions

    def append(self) -> None:
        sides = {
            "ours": lambda: appends(self.folder / "appends", self.records),
            "floor": lambda: bare_writes(self.folder, self.records),
        }
        figures = {side: Figure(found) for side, found in in_turn(self.report, "append", sides, self.rounds).items()}
        more = figures["ours"].best - figures["floor"].best
        lasting = Figure([appends(self.folder / "appends", 50, lasting=True) for _ in range(3)])
        self.report.add(
            "append of an event under a hold",
            [
                Row("event", "µs", figures, [Target("over the bare write", more, 10, "µs")]),
                Row("event, on the disk", "µs", {"ours": lasting}),
            ],
        )

    def list_and_search(self) -> None:
        paths = Paths.from_environment(self.folder / "many", environ={})
        write_sessions(paths.sessions, self.sessions)
        asyncio.run(self._list_and_search(paths))

    async def _list_and_search(self, paths: Paths) -> None:
        store = FileStore(paths)
        started = time.perf_counter()
        await store.list(SessionQuery(limit=1))
        rate = self.sessions / (time.perf_counter() - started)
        rows = [Row("index built", "sessions/s", {"ours": Figure([rate])})]
        for label, query in PAGES.items():
            rows.append(await self._row(label, lambda query=query: store.list(query), 20))  # type: ignore[misc]
        for label, text in SEARCHES.items():
            rows.append(await self._row(label, lambda text=text: store.search(text), 100))  # type: ignore[misc]
        rows.append(await self._row("list of a word in all", lambda: store.list(SessionQuery(text=COMMON)), None))
        await store.close()
        started = time.perf_counter()
        store = FileStore(paths)
        await store.list(SessionQuery())
        opened = Figure([(time.perf_counter() - started) * 1e3])
        await store.close()
        rows.append(Row("opened, and a first page", "ms", {"ours": opened}))
        size = sum(path.stat().st_size for path in paths.state.glob("index.db*")) / 1e6
        rows.append(Row("size of the index", "MB", {"ours": Figure([size])}))
        self.report.add(f"{self.sessions:,} stored sessions of {MESSAGES} messages", rows)

    async def _row(self, label: str, work: Callable[[], Awaitable[object]], limit_ms: float | None) -> Row:
        figure = Figure([await once() for once in timed(work, self.rounds)])
        targets = [] if limit_ms is None else [Target("best", figure.best, limit_ms, "ms")]
        return Row(label, "ms", {"ours": figure}, targets)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what it costs to keep sessions, and to find them again.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds, with 2,000 sessions")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("session_store", peer=None)
    with tempfile.TemporaryDirectory() as directory:
        effort = (3, 2_000, 2_000) if arguments.quick else (7, 20_000, 100_000)
        measurement = Measurement(report, Path(directory), *effort)
        measurement.append()
        measurement.list_and_search()
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
