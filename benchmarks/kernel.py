"""What the kernel costs, beside the reference kernel and a floor of bare asyncio.

Measures hook emission, the life of a session, memory and import. Run it with `make bench`, or alone:

    python benchmarks/kernel.py [--quick] [--check] [emit] [session] [memory] [import]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import _kernel_workloads as workloads
from _harness import (
    REFERENCE_KERNEL,
    SIDES,
    Child,
    Figure,
    Figures,
    Report,
    Row,
    Target,
    answer_requests,
    in_turn,
    seconds_until_ready,
    times,
)

HANDLERS = (0, 1, 5, 20)
MESSAGES = {"small": 0, "500 messages": 500}
IMPORT_KERNEL = "import amplifier_core"
IMPORT_FLOOR = """
import asyncio
from pydantic import BaseModel
class Model(BaseModel):
    name: str
    size: int = 0
"""


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    batch_s: float
    imports: int
    sessions: int  # alive at once
    peer_sessions: int  # fewer, since each takes long and none of them goes away


FULL = Effort(rounds=40, batch_s=0.01, imports=25, sessions=1000, peer_sessions=100)
QUICK = Effort(rounds=12, batch_s=0.003, imports=5, sessions=100, peer_sessions=10)


@dataclass(frozen=True)
class Comparison:
    """One run over all sides; each public method adds its sections to the report."""

    effort: Effort
    report: Report
    pythons: dict[str, str]  # side → its interpreter
    modules: Path

    def emit(self) -> None:
        for place, cpu in _places():
            with ExitStack() as stack:
                children = {side: stack.enter_context(self._child(side, cpu)) for side in self.pythons}
                self.report.add(f"hook emit, {place}", self._emit_rows(children, wanted=60 if cpu is None else 30))

    def _emit_rows(self, children: dict[str, Child], wanted: float) -> Iterator[Row]:
        growth: dict[str, list[float]] = {side: [] for side in children}
        for handlers in HANDLERS:
            by_payload: list[Figures] = []
            for payload, messages in MESSAGES.items():
                label = f"{handlers} handler{'s' if handlers != 1 else ''}, {payload}"
                figures = self._timed(label, 1e6, children, work="emit", handlers=handlers, messages=messages)
                targets = []
                if (handlers, payload) == (1, "small"):
                    targets.append(Target("peer/ours", times(figures, "peer", "ours"), wanted, "×", at_least=True))
                    targets.append(Target("best", _ours(figures), 6, "µs"))
                yield Row(label, "µs", figures, targets)
                by_payload.append(figures)
            small, large = by_payload
            for side in small.keys() & large.keys():
                growth[side].append(large[side].best / small[side].best)
        worst = {side: Figure([max(ratios)]) for side, ratios in growth.items() if ratios}
        yield Row("500 messages to small, worst", "×", worst, [Target("ours", _ours(worst), 2, "×")])

    def session(self) -> None:
        label = f"{len(workloads.MODULES)} modules by resolver"
        for place, cpu in _places():
            with ExitStack() as stack:
                children = {side: stack.enter_context(self._child(side, cpu)) for side in self.pythons}
                figures = self._timed(label, 1e3, children, work="session")
            target = Target("peer/ours", times(figures, "peer", "ours"), 20, "×", at_least=True)
            self.report.add(f"session start to cleanup, {place}", [Row(label, "ms", figures, [target])])

    def memory(self) -> None:
        rows = []
        for way, traced in (("allocated", True), ("occupied", False)):
            measures = {side: partial(self._memory, side, traced=traced) for side in self.pythons}
            found = {side: answer for side, (answer,) in in_turn(self.report, f"memory {way}", measures, 1).items()}
            held, kept, alive = (
                {side: Figure([answer[key] * scale]) for side, answer in found.items()}
                for key, scale in (("held", 2**-10), ("kept", 2**-10), ("alive", 100))
            )
            rows.append(Row(f"while alive, {way}", "KiB", held, [Target("ours", _ours(held), 60, "KiB")]))
            rows.append(
                Row(f"after cleanup, {way}", "KiB", kept, [Target("ours", _ours(kept), 0.1, "KiB")] if traced else [])
            )
        rows.append(Row("conversations after cleanup", "%", alive, [Target("ours", _ours(alive), 0, "%")]))
        self.report.add(f"memory of {self.effort.sessions:,} sessions, each", rows)

    def _memory(self, side: str, *, traced: bool) -> dict[str, float]:
        sessions = self.effort.peer_sessions if side == "peer" else self.effort.sessions
        with self._child(side) as child:
            answer: dict[str, float] = child.ask(measure="memory", sessions=sessions, traced=traced)
            return answer

    def imports(self) -> None:
        codes = {"ours": IMPORT_KERNEL, "peer": IMPORT_KERNEL, "floor": IMPORT_FLOOR}
        starts = {side: partial(seconds_until_ready, python, codes[side]) for side, python in self.pythons.items()}
        starts |= {python: partial(seconds_until_ready, python, "") for python in self.pythons.values()}
        in_turn(self.report, "first import", starts, rounds=1)  # leaves bytecode behind
        found = in_turn(self.report, "import", starts, self.effort.imports)
        sides = {side: python for side, python in self.pythons.items() if {side, python} <= found.keys()}
        bare = {side: Figure([seconds * 1e3 for seconds in found[python]]) for side, python in sides.items()}
        net = {side: Figure([seconds * 1e3 - bare[side].best for seconds in found[side]]) for side in sides}
        targets = [
            Target("ours/floor", times(net, "ours", "floor"), 1.3, "×"),
            Target("peer/ours", times(net, "peer", "ours"), 1, "×", at_least=True),
        ]
        self.report.add(
            "import", [Row("bare interpreter", "ms", bare), Row("import amplifier_core, net", "ms", net, targets)]
        )

    def _timed(self, what: str, scale: float, children: dict[str, Child], **request: Any) -> dict[str, Figure]:
        request |= {"measure": "seconds", "batch_s": self.effort.batch_s}
        measures = {side: partial(child.ask, **request) for side, child in children.items()}
        found = in_turn(self.report, what, measures, self.effort.rounds)
        for side in children.keys() - found.keys():
            del children[side]  # it has ended
        return {side: Figure([seconds * scale for seconds in samples]) for side, samples in found.items()}

    def _child(self, side: str, cpu: int | None = None) -> Child:
        command = [self.pythons[side], __file__, "--measure", side, "--modules", str(self.modules)]
        return Child([*command, "--cpu", str(cpu)] if cpu is not None else command)


SECTIONS = {
    "emit": Comparison.emit,
    "session": Comparison.session,
    "memory": Comparison.memory,
    "import": Comparison.imports,
}


def _ours(figures: Figures) -> float | None:
    return figures["ours"].best if "ours" in figures else None


def _places() -> Iterator[tuple[str, int | None]]:
    """The ways to run the sides: wherever the system puts them, and all on the same core."""
    yield "unpinned", None
    if hasattr(os, "sched_setaffinity"):
        yield "pinned to one core", max(os.sched_getaffinity(0))
    else:
        print("\nthis platform cannot pin a process to a core: unpinned figures only")


def compare(sections: Sequence[str], *, effort: Effort, check: bool) -> int:
    peer = REFERENCE_KERNEL.find()
    pythons = {"ours": sys.executable} | ({"peer": peer[0]} if peer else {}) | {"floor": sys.executable}
    report = Report("kernel", peer[1] if peer else None)
    with tempfile.TemporaryDirectory() as directory:
        workloads.write_modules(Path(directory))
        comparison = Comparison(effort, report, pythons, Path(directory))
        for section in sections or SECTIONS:
            SECTIONS[section](comparison)
    return report.finish(check=check)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the kernel beside the reference kernel and bare asyncio.")
    parser.add_argument("sections", nargs="*", metavar="section", help=f"what to measure, default all: {[*SECTIONS]}")
    parser.add_argument("--quick", action="store_true", help="measure for seconds instead of minutes")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)  # be the process of one side
    parser.add_argument("--modules", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - SECTIONS.keys():
        parser.error(f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if arguments.measure is None:
        return compare(arguments.sections, effort=QUICK if arguments.quick else FULL, check=arguments.check)
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    workloads.serve(arguments.measure, arguments.modules, answer_requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
