"""What a stored turn takes, and each tool call in it, beside other agents that store theirs.

Sides: a session in our files with the settings as shipped (checkpoints of the working directory included), LangGraph
with its SQLite saver, and OpenAI Agents with its SQLite session. All have a scripted model and one tool that answer at
once. They take turns, conversation by conversation, on the same disk. A tool call is what a turn of ten calls takes
beyond one without, a tenth of it. Targets use the best turns, since a disturbance only makes a turn longer.

What each side waits for the disk to take differs, and the last section counts it (with `strace`, where there is one):

- ours: the prompt before the model is asked; the intent of every tool call before the tool runs; messages, events,
  checkpoints and the record of the session before the end of the turn is announced.
- LangGraph: a commit of SQLite after every step, in WAL mode with `synchronous=FULL`, `durability="sync"`. Nothing is
  stored between a model's answer and its tool calls that says whether a tool was begun.
- OpenAI Agents: a commit of SQLite for the prompt and for the items of every model call, in WAL mode with
  `synchronous=FULL`. Whether a tool was begun is not stored.

Run it with `make bench`, or alone:

    python benchmarks/durable.py [--quick] [--check]
"""

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from _harness import Child, Figure, MeasurementFailed, PeerEnvironment, Report, Row, Target, in_turn

PEERS = PeerEnvironment(
    ["langgraph", "langgraph-checkpoint-sqlite", "openai-agents"],
    "AMPLIFIER_DURABLE_PEER_PYTHON",
    ".venv-durable-peer",
    "durable-peer-requirements.txt",
)
NAMES = {"langgraph": "LangGraph", "openai-agents": "OpenAI Agents"}
CALLS = (0, 10)
MOST_TURN_MS = 2.6  # or what the best peer takes, if that is more
LEAST_TIMES_PER_CALL = 4.0

Taken = dict[str, list[float]]  # "clock" and "cpu" → the ms of each turn


@dataclass
class Side:
    """The turns of one side, by their number of tool calls."""

    turns: dict[int, Taken] = field(default_factory=lambda: {calls: {"clock": [], "cpu": []} for calls in CALLS})

    def add(self, calls: int, taken: Taken) -> None:
        for clock, samples in taken.items():
            self.turns[calls][clock] += samples

    def turn(self, clock: str) -> Figure:
        return Figure(self.turns[CALLS[0]][clock])

    def call(self, clock: str) -> Figure:
        """What one tool call adds: by the best turns, and by the medians."""
        few, many = (Figure(self.turns[calls][clock]) for calls in CALLS)
        return Figure(sorted(((many.best - few.best) / CALLS[1], (many.median - few.median) / CALLS[1])))


def rows_of(sides: dict[str, Side]) -> tuple[list[Row], list[Row]]:
    """Return the rows of a turn and of a tool call: ours beside each peer, and beside the best of them."""
    ours, peers = sides["ours"], {name: sides[name] for name in NAMES if name in sides}
    turns, calls = list[Row](), list[Row]()
    for name, peer in peers.items():
        for clock, label in (("clock", NAMES[name]), ("cpu", "  on the CPUs")):
            turns.append(Row(label, "ms", {"ours": ours.turn(clock), "peer": peer.turn(clock)}))
            calls.append(Row(label, "ms", {"ours": ours.call(clock), "peer": peer.call(clock)}))
    best_turn = min((peer.turn("clock").best for peer in peers.values()), default=0.0)
    best_call = min((peer.call("clock").best for peer in peers.values()), default=None)
    limit = round(max(MOST_TURN_MS, best_turn), 2)
    turns.append(
        Row("ours", "ms", {"ours": ours.turn("clock")}, [Target("best", ours.turn("clock").best, limit, "ms")])
    )
    ratio = best_call / ours.call("clock").best if best_call is not None else None
    target = Target("the best peer / ours", ratio, LEAST_TIMES_PER_CALL, "×", at_least=True)
    calls.append(Row("ours", "ms", {"ours": ours.call("clock")}, [target]))
    return turns, calls


def counted_syncs(side: str, python: str, folder: Path) -> dict[int, float]:
    """Return how often a turn of a side waits for the disk, by its number of tool calls."""
    found, log = dict[int, float](), folder / "syncs.txt"
    for calls in CALLS:
        place = folder / f"{side}-{calls}"
        place.mkdir()
        command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        with Child([*command, *command_of(side, python, place)]) as child:
            child.ask(calls=calls)  # what is done once is done
            before = _lines(log)
            turns = len(child.ask(calls=calls)["clock"]) + 1
            found[calls] = (_lines(log) - before) / turns
    return found


def _lines(log: Path) -> int:
    return sum(" = 0" in line for line in log.read_text().splitlines())


def command_of(side: str, python: str, folder: Path) -> list[str]:
    return [python, str(Path(__file__).with_name("_durable_sides.py")), side, str(folder)]


def measure(report: Report, pythons: dict[str, str], folder: Path, rounds: int) -> None:
    sides = {side: Side() for side in pythons}
    with ExitStack() as stack:
        children = {}
        for side, python in pythons.items():
            place = folder / side
            place.mkdir()
            children[side] = stack.enter_context(Child(command_of(side, python, place)))
        for number in range(rounds + 1):
            for calls in CALLS:
                asked = {side: partial(child.ask, calls=calls) for side, child in children.items()}
                for side, samples in in_turn(report, f"{calls} tool calls", asked, 1).items():
                    if number:  # the first conversation warms up
                        sides[side].add(calls, samples[0])
    turns, per_call = rows_of({side: taken for side, taken in sides.items() if taken.turns[CALLS[1]]["clock"]})
    report.add("a stored turn without tools", turns)
    report.add("each stored tool call", per_call)
    if shutil.which("strace") is None:
        print("\nno strace: what each side waits for the disk to take is not counted")
        return
    rows = []
    for side, python in pythons.items():
        try:
            syncs = counted_syncs(side, python, folder)
        except MeasurementFailed as error:
            report.fail(f"syncs, {side}", error)
            continue
        column, name = ("ours", "ours") if side == "ours" else ("peer", NAMES[side])
        each = (syncs[CALLS[1]] - syncs[CALLS[0]]) / CALLS[1]
        rows.append(Row(f"{name}, a turn", "", {column: Figure([syncs[CALLS[0]]])}))
        rows.append(Row(f"{name}, a tool call", "", {column: Figure([each])}))
    report.add("waits for the disk (fsync, fdatasync)", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure stored turns beside those of other agents.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    peer = PEERS.find()
    pythons = {"ours": sys.executable} | (dict.fromkeys(NAMES, peer[0]) if peer else {})
    report = Report("durable", peer[1] if peer else None)
    with tempfile.TemporaryDirectory() as folder:
        measure(report, pythons, Path(folder), rounds=2 if arguments.quick else 10)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
