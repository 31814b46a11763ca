"""Checkpoints of a working directory of 5,000 files: nothing changed, a few files changed, and the first one.

The floor looks at every file and nothing more: `os.scandir` and `stat`. Run it with `make bench`, or alone:

    python benchmarks/checkpoints.py [--quick] [--check]
"""

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _harness import Figure, MeasurementFailed, Report, Row, Target, in_turn

from amplifierd.checkpoints import Checkpoint, Checkpoints

FILES = 5_000
CHANGED = 10
TARGET_MS = 150.0
IGNORE = "*.pyc\n__pycache__/\nnode_modules/\n/build/\n.env\n*.log\n!keep.log\ndist/\n*.tmp\n.cache/\n"


def make_project(folder: Path) -> list[Path]:
    """Write a project of 5,000 files of a few KiB in 250 directories, with an ignore file; return the files."""
    chance = random.Random(5)
    files = []
    for number in range(FILES):
        place = folder / f"package{number % 25}" / f"part{number // 25 % 10}" / f"module{number}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"value_{chance.randrange(10**9)} = {line}" for line in range(chance.randrange(20, 120)))
        place.write_text("\n".join(lines))
        files.append(place)
    (folder / ".gitignore").write_text(IGNORE)
    return files


def timed(take: Callable[[], Checkpoint]) -> Callable[[], float]:
    def run() -> float:
        started_s = time.perf_counter()
        checkpoint = take()
        elapsed_s = time.perf_counter() - started_s
        if not checkpoint.complete or checkpoint.files != FILES + 1:
            raise MeasurementFailed(f"{checkpoint.files} files: {checkpoint.reason}")
        return elapsed_s

    return run


def look_at_everything(folder: Path) -> float:
    started_s = time.perf_counter()
    waiting = [str(folder)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            entry.stat(follow_symlinks=False)
    return time.perf_counter() - started_s


def measure(report: Report, folder: Path, rounds: int) -> None:
    work = folder / "work"
    files = make_project(work)
    numbers = itertools.count()

    def opened(name: str) -> Checkpoints:
        return Checkpoints(folder / name, work, timeout_seconds=60)

    def first() -> Checkpoint:
        return asyncio.run(opened(f"first{next(numbers)}").take(1))

    warm = opened("warm")
    asyncio.run(warm.take(1))
    settle()
    asyncio.run(warm.take(1))

    def changed() -> Checkpoint:
        for file in files[:CHANGED]:
            file.write_text(f"changed = {next(numbers)}\n")
        return asyncio.run(warm.take(1))

    def floor() -> float:
        return look_at_everything(work)

    parts: list[tuple[str, Callable[[], Checkpoint], int, bool]] = [
        ("nothing changed", lambda: asyncio.run(warm.take(1)), rounds, True),
        ("nothing changed, a new process", lambda: asyncio.run(opened("warm").take(1)), rounds, False),
        (f"{CHANGED} files changed", changed, rounds, False),
        ("the first one", first, max(2, rounds // 10), False),
    ]
    rows = []
    for label, take, times, has_target in parts:
        samples = in_turn(report, label, {"ours": timed(take), "floor": floor}, times)
        figures = {side: Figure([one * 1e3 for one in taken]) for side, taken in samples.items() if taken}
        median = figures["ours"].median if "ours" in figures else None
        rows.append(Row(label, "ms", figures, [Target("p50", median, TARGET_MS, "ms")] if has_target else []))
    report.add(f"a checkpoint of {FILES} files", rows)


def settle() -> None:
    """Wait until the files are older than the clock of the file system can blur."""
    time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure checkpoints of a working directory.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("checkpoints", peer=None)
    with tempfile.TemporaryDirectory() as folder:
        measure(report, Path(folder), 10 if arguments.quick else 50)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
