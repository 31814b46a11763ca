"""What it costs to find text and names in a tree, and to read a file.

The floor of a search is ripgrep itself, of a read `cat`. Nothing here has a target; run it with `make bench`, or alone:

    python benchmarks/search.py [--quick]
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, in_turn

sys.path[:0] = [str(REPOSITORY / "modules" / name) for name in ("tool-search", "tool-filesystem")]

from amplifier_module_tool_filesystem import ReadTool  # noqa: E402
from amplifier_module_tool_search import GlobTool, GrepTool  # noqa: E402
from amplifier_module_tool_search.ripgrep import find_ripgrep  # noqa: E402

WORDS = ["return", "value", "import", "self", "result", "None", "path", "config", "await", "session", "éclair", "x = 1"]
SEARCHES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("rare word", {"pattern": "needle_4711"}, ["-l", "needle_4711"]),
    ("rare word, -i", {"pattern": "NEEDLE_4711", "-i": True}, ["-l", "-i", "NEEDLE_4711"]),
    ("in every file", {"pattern": r"\bimport\b"}, ["-l", r"\bimport\b"]),
    ("lines", {"pattern": r"needle_\d+.*$", "output_mode": "content"}, [r"needle_\d+.*$"]),
    ("counts", {"pattern": "session", "output_mode": "count"}, ["-c", "session"]),
    ("one file type", {"pattern": "needle", "type": "py"}, ["-l", "-g", "*.py", "needle"]),
]


def make_tree(folder: Path, files: int) -> None:
    """Write a tree of source files, ten to a directory, with something to find in about every hundredth."""
    chance = random.Random(7)
    for number in range(files):
        directory = folder / f"package{number // 100}" / f"part{number // 10}"
        directory.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(WORDS, k=8)) for _ in range(120)]
        if number % 101 == 0:
            lines[60] = f"found needle_{4711 if number == 0 else number} here"
        (directory / f"file{number}.{'py' if number % 2 else 'txt'}").write_text("\n".join(lines), encoding="utf-8")


@dataclass
class Measurement:
    report: Report
    folder: Path
    rounds: int
    ripgrep: str

    def grep(self) -> None:
        rows = []
        tool = GrepTool({"working_dir": str(self.folder)})
        for label, request, arguments in SEARCHES:
            sides: dict[str, Callable[[], float]] = {
                "ours": self._calling(partial(tool.execute, request)),
                "floor": partial(self._running, self.ripgrep, *arguments, "."),
            }
            rows.append(self._row(label, sides))
        self.report.add("grep", rows)

    def glob(self) -> None:
        rows = []
        for label, pattern in (
            ("all names", "**/*.py"),
            ("one directory", "package0/part0/*"),
            ("one name", "**/file99*"),
        ):
            tool = GlobTool({"working_dir": str(self.folder)})
            sides = {"ours": self._calling(partial(tool.execute, {"pattern": pattern}))}
            rows.append(self._row(label, sides))
        self.report.add("glob", rows)

    def read(self, megabytes: int) -> None:
        path = self.folder / "large.txt"
        path.write_text("a line of some sixty characters, as they are in source code.\n" * (megabytes * 16_000))
        tool = ReadTool({"working_dir": str(self.folder), "max_read_bytes": 1 << 30})
        rows = []
        for label, window in (("first 2,000 lines, counted", {}), ("everything", {"limit": 10**9})):
            request = {"file_path": str(path), **window}
            sides: dict[str, Callable[[], float]] = {
                "ours": self._calling(partial(tool.execute, request)),
                "floor": partial(self._running, "cat", str(path)),
            }
            rows.append(self._row(label, sides))
        self.report.add(f"read_file, {megabytes} MB", rows)

    def _row(self, label: str, sides: dict[str, Callable[[], float]]) -> Row:
        samples = in_turn(self.report, label, sides, self.rounds)
        return Row(
            label, "ms", {side: Figure([one * 1e3 for one in taken]) for side, taken in samples.items() if taken}
        )

    def _calling(self, call: Callable[[], Awaitable[Any]]) -> Callable[[], float]:
        async def timed() -> float:
            started = time.perf_counter()
            result = await call()
            elapsed_s = time.perf_counter() - started
            if not result.success:
                raise MeasurementFailed(str(result.output))
            return elapsed_s

        return lambda: asyncio.run(timed())

    def _running(self, *command: str) -> float:
        started = time.perf_counter()
        subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure searching a tree and reading a file.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("search", peer=None)
    ripgrep = find_ripgrep()
    if ripgrep is None:
        parser.error("ripgrep (rg) is not installed")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        make_tree(folder, 500 if arguments.quick else 5_000)
        measurement = Measurement(report, folder, 3 if arguments.quick else 7, ripgrep)
        measurement.grep()
        measurement.glob()
        measurement.read(5 if arguments.quick else 50)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
