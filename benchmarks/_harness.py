"""What the benchmarks share: processes that answer measurements, the peer's environment, and the report.

A benchmark runs the same measuring code on several sides (`ours`, the `peer`, a bare `floor`), each in a process of
its own, and takes the sides in turn, so that whatever else the machine does hits all of them alike.
"""

import json
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self, TypeVar

REPOSITORY = Path(__file__).resolve().parent.parent

SIDES = ("ours", "peer", "floor")
RATIOS = (("peer", "ours"), ("ours", "floor"))

T = TypeVar("T")

_WIDTHS = (10, 7, 11, 7, 11, 7, 11, 12)  # of the number columns


class MeasurementFailed(Exception):
    """A side could not be measured; the message says why."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one side needed in each round."""

    samples: Sequence[float]

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


Figures = Mapping[str, Figure]  # side → what it needed


def times(figures: Figures, above: str, below: str) -> float | None:
    """How many times more one side needs than another, by their best rounds; None without both.

    What disturbs a round only makes it longer, so the best of many says most about the work itself.
    """
    if above not in figures or below not in figures or figures[below].best <= 0:
        return None
    return figures[above].best / figures[below].best


@dataclass(frozen=True, slots=True)
class Target:
    """A limit for one value; the value is None when a side that it needs was not measured."""

    of: str
    value: float | None
    limit: float
    unit: str
    at_least: bool = False

    @property
    def text(self) -> str:
        return f"{self.of} {'≥' if self.at_least else '≤'} {_with_unit(f'{self.limit:g}', self.unit)}"

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        return "met" if (self.value >= self.limit if self.at_least else self.value <= self.limit) else "missed"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the sides' figures in one unit, and what is asked of ours."""

    label: str
    unit: str
    figures: Figures
    targets: Sequence[Target] = ()

    def cells(self) -> Iterator[str]:
        yield self.label
        for side in SIDES:
            figure = self.figures.get(side)
            yield _with_unit(_number(figure.median), self.unit) if figure else "–"
            yield _number(figure.best) if figure and len(figure.samples) > 1 else ""
        for ratio in self._ratios().values():
            yield "–" if ratio is None else _with_unit(_number(ratio), "×")
        yield ", ".join(f"{target.text}: {target.verdict}" for target in self.targets)

    def to_dict(self) -> dict[str, Any]:
        figures = {side: {"median": _short(f.median), "best": _short(f.best)} for side, f in self.figures.items()}
        ratios = {name: _short(ratio) for name, ratio in self._ratios().items()}
        medians = {side: Figure([figure.median]) for side, figure in self.figures.items()}
        ratios |= {f"{a}/{b} of medians": _short(times(medians, a, b)) for a, b in RATIOS}
        targets = [{"target": t.text, "value": _short(t.value), "verdict": t.verdict} for t in self.targets]
        return {"label": self.label, "unit": self.unit, **figures, **ratios, "targets": targets}

    def _ratios(self) -> dict[str, float | None]:
        return {f"{above}/{below}": times(self.figures, above, below) for above, below in RATIOS}


@dataclass
class Report:
    """The figures of a run: a table that grows section by section, one JSON line, and an exit code."""

    benchmark: str
    peer: str | None
    sections: dict[str, list[Row]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, section: str, rows: Iterable[Row]) -> None:
        self.sections[section] = list(rows)
        header = ("", *(cell for side in SIDES for cell in (side, "best")), *map("/".join, RATIOS), "target")
        print(f"\n{section}")
        for label, *numbers, target in (header, *(row.cells() for row in self.sections[section])):
            columns = "".join(f"{number:>{width}}" for number, width in zip(numbers, _WIDTHS, strict=True))
            print(f"  {label:<29}{columns}  {target}".rstrip())
        sys.stdout.flush()

    def fail(self, what: str, error: MeasurementFailed) -> None:
        self.failures.append(f"{what}: {str(error).splitlines()[0]}")
        print(f"failed: {what}: {error}", file=sys.stderr, flush=True)

    def finish(self, *, check: bool) -> int:
        """Print the JSON line; 1 when a measurement failed or, with `check`, when a target was missed."""
        verdicts = [target.verdict for rows in self.sections.values() for row in rows for target in row.targets]
        counts = {verdict: verdicts.count(verdict) for verdict in ("met", "missed", "not measured")}
        print(f"\ntargets: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
        document = {
            "benchmark": self.benchmark,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "peer": self.peer,
            "sections": {name: [row.to_dict() for row in rows] for name, rows in self.sections.items()},
            "targets": counts,
            "failures": self.failures,
        }
        print(json.dumps(document, ensure_ascii=False))
        return int(bool(self.failures) or (check and counts["missed"] > 0))


def in_turn(report: Report, what: str, sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Measure every side once per round; a side that fails is reported and left out of the rest."""
    samples: dict[str, list[T]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in list(samples):
            try:
                samples[side].append(sides[side]())
            except MeasurementFailed as error:
                report.fail(f"{what}, {side}", error)
                del samples[side]
    return samples


class Child:
    """A process that answers each JSON line on its input with one on its output.

    It is killed when done: what an interpreter does at its exit is not measured, and may crash.
    """

    def __init__(self, command: Sequence[str], *, timeout_s: float = 120) -> None:
        self._timeout_s = timeout_s
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=_environment()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise MeasurementFailed(f"the process ended\n{self._last_errors()}") from None
        if not select.select([self._process.stdout], [], [], self._timeout_s)[0]:
            self._process.kill()
            raise MeasurementFailed(f"no answer to {request} within {self._timeout_s:g} s")
        answer = self._process.stdout.readline()
        if not answer:
            raise MeasurementFailed(f"the process ended while it measured {request}\n{self._last_errors()}")
        return json.loads(answer)

    def _last_errors(self) -> str:
        self._errors.seek(0)
        return "\n".join(self._errors.read().decode(errors="replace").splitlines()[-12:])


def answer_requests(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Be the other end of a `Child`."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def seconds_until_ready(python: str, code: str, *, timeout_s: float = 60) -> float:
    """Start an interpreter and return how long it takes until it has run `code`."""
    started = time.perf_counter()
    with subprocess.Popen(
        [python, "-c", f"{code}\nimport sys\nsys.stdout.write('ready\\n')\nsys.stdout.flush()"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tempfile.gettempdir(),
        env=_environment(),
    ) as process:
        assert process.stdout
        assert process.stderr
        answered = select.select([process.stdout], [], [], timeout_s)[0]
        elapsed_s = time.perf_counter() - started
        ready = bool(answered) and process.stdout.readline() == b"ready\n"
        process.kill()  # its exit is not part of the start, and may crash
        if not ready:
            raise MeasurementFailed(f"{python} did not run {code!r}\n{process.stderr.read().decode(errors='replace')}")
    return elapsed_s


@dataclass(frozen=True)
class PeerEnvironment:
    """Packages from the index in a virtual environment of their own; a variable may name its interpreter."""

    distributions: Sequence[str]
    variable: str
    folder: str
    requirements: str

    def find(self) -> tuple[str, str] | None:
        """Return the interpreter and the versions, made on demand; None if the environment cannot be made."""
        named = os.environ.get(self.variable)
        python = Path(named) if named else REPOSITORY / self.folder / "bin/python"
        versions = self._versions(python)
        if versions is None and named:
            sys.exit(f"error: {self.variable}={named}: no {self._names} there\n  fix: make bench")
        if versions is None and self._install(python):
            versions = self._versions(python)
        if versions is None:
            print(f"no {self._names}: is the package index reachable? They are left out.")
            return None
        return str(python), versions

    @property
    def _names(self) -> str:
        return " and ".join(self.distributions)

    def _versions(self, python: Path) -> str | None:
        code = f"from importlib.metadata import version; print(*(version(name) for name in {list(self.distributions)}))"
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30, env=_environment())
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return None
        return ", ".join(map(" ".join, zip(self.distributions, done.stdout.split(), strict=True)))

    def _install(self, python: Path) -> bool:
        print(f"Installing {self._names} into {self.folder}", flush=True)
        quietly = ["--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
        requirements = Path(__file__).with_name(self.requirements)
        steps: list[list[str | Path]] = [
            [sys.executable, "-m", "venv", "--clear", python.parent.parent],
            [python, "-m", "pip", "install", *quietly, "--requirement", requirements],
        ]
        try:
            return all(subprocess.run(step, timeout=300, env=_environment()).returncode == 0 for step in steps)
        except (OSError, subprocess.TimeoutExpired):
            return False


REFERENCE_KERNEL = PeerEnvironment(["amplifier-core"], "AMPLIFIER_PEER_PYTHON", ".venv-peer", "peer-requirements.txt")


def _environment() -> dict[str, str]:
    """The variables of this process without those that would give a side the other's packages, or no bytecode."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONSTARTUP"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


def _number(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _with_unit(number: str, unit: str) -> str:
    return number + (unit if unit == "×" else f" {unit}" if unit else "")
