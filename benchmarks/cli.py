"""How fast the command `amplifier` is there: help and version, a first token, a list of sessions.

Each run is a process of its own. The floor is what no command of its kind can do without: the import of typer, or of
the libraries that a turn needs. Run it with `make bench`, or alone:

    python benchmarks/cli.py [--quick] [--check] [--sessions N]
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from _harness import Figure, MeasurementFailed, Report, Row, Target, in_turn, times

import amplifierd
from amplifierd.session_store.file_store import FileStore
from amplifierd.session_store.hold import Holder
from amplifierd.session_store.protocol import NewSession
from amplifierd.session_store.record import SessionRecord, new_session_id, now

TYPER = "import typer"
TURN = "import amplifierd.sessions.home_sessions, rich.markdown, typer"
OVER_BARE_MS = 150.0


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run an interpreter to its end and return the seconds that took."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise MeasurementFailed(f"{' '.join(arguments)} exited with {done.returncode}\n{done.stderr}")
    return elapsed


def first_token(environment: Mapping[str, str], work: Path) -> float:
    """Return the seconds until a turn has streamed its first words."""
    command = [
        sys.executable,
        "-m",
        "amplifier_cli",
        "run",
        "--profile",
        "foundation/offline",
        "-o",
        "jsonl",
        "List files",
    ]
    started = time.perf_counter()
    with subprocess.Popen(
        command,
        env=environment,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "llm:stream_block_delta" and event["data"].get("text"):
                elapsed = time.perf_counter() - started
                process.communicate()
                return elapsed
        raise MeasurementFailed(f"nothing was streamed\n{process.stderr.read() if process.stderr else ''}")


async def store_sessions(home: Path, count: int) -> None:
    """Store sessions, and build the index that lists them."""
    paths = amplifierd.open_home(home, offline=True).paths
    store, holder = FileStore(paths), Holder.of_this_process()
    for number in range(count):
        moment = now()
        record = SessionRecord(
            session_id=new_session_id(),
            name=f"Session {number}",
            working_dir="/",
            created_at=moment,
            last_activity_at=moment,
        )
        await store.release(await store.create(NewSession(record, {"session": {}}), holder))
    await store.close()


def measured(report: Report, label: str, sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Figure]:
    samples = in_turn(report, label, sides, rounds)
    return {side: Figure([one * 1e3 for one in taken]) for side, taken in samples.items() if taken}


def ratio_row(label: str, figures: dict[str, Figure], limit: float) -> Row:
    return Row(label, "ms", figures, [Target("ours/floor", times(figures, "ours", "floor"), limit, "×")])


def measure(report: Report, folder: Path, rounds: int, sessions: int) -> None:
    home, work = folder / "home", folder / "work"
    work.mkdir()
    (work / "notes.md").write_text("# Notes\n")
    environment = {**os.environ, "AMPLIFIERD_HOME": str(home), "AMPLIFIERD_OFFLINE": "1"}

    def ours(*arguments: str) -> Callable[[], float]:
        return partial(run, ["-m", "amplifier_cli", *arguments], environment)

    def floor(code: str) -> Callable[[], float]:
        return partial(run, ["-c", code], environment)

    help_figures = measured(report, "--help", {"ours": ours("--help"), "floor": floor(TYPER)}, rounds)
    bare = measured(report, "a bare interpreter", {"floor": floor("pass")}, rounds)
    version = measured(report, "version", {"ours": ours("version"), "floor": floor(TYPER)}, rounds)
    over = help_figures["ours"].best - bare["floor"].best if "ours" in help_figures and "floor" in bare else None
    report.add(
        "what needs no home; the floor imports typer",
        [
            ratio_row("amplifier --help", help_figures, 1.5),
            Row("… over a bare interpreter", "ms", bare, [Target("ours - bare", over, OVER_BARE_MS, "ms")]),
            ratio_row("amplifier version", version, 1.5),
        ],
    )
    first_token(environment, work)  # compiles the profile
    first = measured(
        report, "first token", {"ours": partial(first_token, environment, work), "floor": floor(TURN)}, rounds
    )
    report.add("a turn on a compiled profile; the floor imports what it needs", [ratio_row("first token", first, 2.0)])

    asyncio.run(store_sessions(home, sessions))
    run(["-m", "amplifier_cli", "session", "list"], environment)
    sides = {"ours": ours("session", "list"), "floor": ours("version")}
    listed = measured(report, "session list", sides, rounds)
    report.add(f"{sessions:,} sessions; the floor is amplifier version", [ratio_row("session list", listed, 1.5)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how fast the command amplifier is there.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--sessions", type=int, help="how many sessions to list; 100,000 take minutes to store")
    arguments = parser.parse_args()
    report = Report("cli", peer=None)
    with tempfile.TemporaryDirectory() as folder:
        sessions = arguments.sessions or (200 if arguments.quick else 100_000)
        measure(report, Path(folder), 3 if arguments.quick else 10, sessions)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
