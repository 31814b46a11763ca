"""What it costs to log a session and to mask what is logged.

The floor of a record is one `json.dumps` and one write. Run it with `make bench`, or alone:

    python benchmarks/session_log.py [--quick] [--check]
"""

import argparse
import asyncio
import json
import os
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _harness import REPOSITORY, Figure, Report, Row, Target, in_turn

sys.path[:0] = [str(REPOSITORY / "modules" / name) for name in ("hooks-logging", "hooks-redaction")]

from amplifier_module_hooks_logging import mount as mount_logging  # noqa: E402
from amplifier_module_hooks_redaction import mask_text  # noqa: E402
from amplifier_module_hooks_redaction import mount as mount_redaction  # noqa: E402

from amplifier_core import ModuleCoordinator  # noqa: E402

WANTED_PER_SECOND = 20_000
MEGABYTE = 10**6
CLASSES = {
    "lower case": "a",
    "upper case": "A",
    "digits": "1",
    "spaces": " ",
    "punctuation": string.punctuation,
    "letters and digits": string.ascii_letters + string.digits,
    "beyond ASCII": "éüñ",
}


def small_record(number: int) -> dict[str, Any]:
    return {"tool_name": "read_file", "tool_call_id": f"call_{number}", "tool_input": {"path": "src/main.py"}}


def kilobyte_record(number: int) -> dict[str, Any]:
    return {**small_record(number), "note": "lorem ipsum " * 75}


@dataclass
class Session:
    """A coordinator with hooks-logging, and hooks-redaction if asked for, that writes below a folder."""

    folder: Path
    is_redacted: bool = False
    coordinator: ModuleCoordinator = field(default_factory=ModuleCoordinator)

    async def mounted(self) -> "Session":
        self.coordinator.hooks.set_default_fields(session_id="benchmark", parent_id=None)
        await mount_logging(self.coordinator, {"output_dir": str(self.folder)})
        if self.is_redacted:
            await mount_redaction(self.coordinator, {})
        return self

    async def emit(self, event: str, payload: Callable[[int], dict[str, Any]], count: int) -> list[float]:
        """Emit events one after the other and return the seconds each took."""
        emit, clock = self.coordinator.hooks.emit, time.perf_counter
        taken = []
        for number in range(count):
            data = payload(number)
            started = clock()
            await emit(event, data)
            taken.append(clock() - started)
        return taken


def bare_writes(folder: Path, payload: Callable[[int], dict[str, Any]], count: int) -> list[float]:
    """Do the least that leaves the same lines in a file."""
    descriptor = os.open(folder / "floor.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    taken = []
    for number in range(count):
        data = payload(number)
        started = time.perf_counter()
        record = {"ts": "2024-01-15T10:30:00.000000+00:00", "lvl": "INFO", "event": "plan:start", "data": data}
        os.write(descriptor, (json.dumps(record, ensure_ascii=False) + "\n").encode())
        taken.append(time.perf_counter() - started)
    os.close(descriptor)
    return taken


@dataclass(frozen=True)
class Measurement:
    report: Report
    folder: Path
    rounds: int
    records: int  # in each round

    def log(self) -> None:
        self.report.add("session log, per record", self._log_rows())

    def _log_rows(self) -> Iterator[Row]:
        for label, payload in (("small", small_record), ("1 KB", kilobyte_record)):
            rounds = self._in_turn(label, payload)
            figures = {side: Figure([_mean(one) * 1e6 for one in found]) for side, found in rounds.items()}
            targets = []
            if label == "small":
                targets.append(
                    Target("rate", 1e6 / figures["ours"].best, WANTED_PER_SECOND, "records/s", at_least=True)
                )
            else:
                targets.append(Target("p99", min(_p99(one) for one in rounds["ours"]) * 1e3, 1, "ms"))
            yield Row(f"{label} records", "µs", figures, targets)
        redacted = self._in_turn("redacted", small_record, is_redacted=True)
        yield Row("small records, redacted", "µs", {"ours": Figure([_mean(one) * 1e6 for one in redacted["ours"]])})
        few, many = (Figure(self._requests(count)) for count in (10, 10_000))
        yield Row("request of 10 messages", "µs", {"ours": few})
        yield Row(
            "request of 10,000 messages", "µs", {"ours": many}, [Target("10,000 to 10", many.best / few.best, 5, "×")]
        )

    def _in_turn(self, label: str, payload: Callable[[int], dict[str, Any]], *, is_redacted: bool = False) -> Any:
        with tempfile.TemporaryDirectory(dir=self.folder) as directory:
            folder = Path(directory)

            def ours() -> list[float]:
                async def run() -> list[float]:
                    session = await Session(folder, is_redacted).mounted()
                    return await session.emit("plan:start", payload, self.records)

                return asyncio.run(run())

            sides = {"ours": ours, "floor": lambda: bare_writes(folder, payload, self.records)}
            return in_turn(self.report, label, sides, self.rounds)

    def _requests(self, count: int) -> list[float]:
        """Return the µs of a request line, each time with one message more."""

        async def run() -> list[float]:
            session = await Session(self.folder).mounted()
            history = [{"role": "user", "content": f"message {number}"} for number in range(count)]
            await session.emit("provider:request", lambda _: {"messages": list(history)}, 1)

            def longer(number: int) -> dict[str, Any]:
                history.append({"role": "user", "content": f"more {number}"})
                return {"messages": list(history)}

            return [_mean(await session.emit("provider:request", longer, 20)) * 1e6 for _ in range(self.rounds)]

        return asyncio.run(run())

    def mask(self) -> None:
        rows = []
        for name, characters in CLASSES.items():
            text = (characters * (MEGABYTE // len(characters) + 1))[:MEGABYTE]
            figure = Figure([_seconds(lambda text=text: mask_text(text)) * 1e3 for _ in range(self.rounds)])
            rows.append(Row(name, "ms", {"ours": figure}, [Target("best", figure.best, 50, "ms")]))
        self.report.add("masking 1 MB of one class of characters", rows)


def _mean(samples: list[float]) -> float:
    return sum(samples) / len(samples)


def _p99(samples: list[float]) -> float:
    return sorted(samples)[int(len(samples) * 0.99)]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what it costs to log a session and to mask what is logged.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("session_log", peer=None)
    with tempfile.TemporaryDirectory() as directory:
        effort = (3, 2_000) if arguments.quick else (7, 20_000)
        measurement = Measurement(report, Path(directory), *effort)
        measurement.log()
        measurement.mask()
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
