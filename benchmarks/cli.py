"""How long a person waits for the command: its help, its version, its first word, its list of very many sessions. In a
chat at a pseudo-terminal: for a sign after Enter, and after Ctrl-C for the end.

Every side is a process that is started anew. The floor of the first word imports what no program that runs an agent at
a terminal can do without: from `amplifierd` its front door, by name, since a bare `import amplifierd` loads nothing of
what its names stand for; typer, which reads the command line; and from rich what draws an answer. It opens no home and
runs nothing; and sessions and modules, which a run imports too, are not in it.

Run it with `make bench`, or alone:

    python benchmarks/cli.py [--quick] [--check]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pexpect
from _harness import Figure, MeasurementFailed, Report, Row, Target, in_turn, seconds_until_ready, times
from session_store import write_sessions

from amplifierd.paths import Paths

sys.path.append(str(Path(__file__).parents[1] / "tests/stand_ins"))
from openai_server import KEY, OpenAIServer, Said

TYPER = "import typer"
DRAWING = "from amplifierd import open_home; import typer, rich.console, rich.markdown"
FIRST_WORDS = ("llm:stream_block_delta", "content_block:delta", "content_block:end")

Side = Callable[[], float]


class Command:
    """The command with a home of its own."""

    def __init__(self, home: Path) -> None:
        elsewhere = home.parent / "ecosystem"  # where other applications keep sessions: none of this machine's
        own = {
            "AMPLIFIERD_HOME": str(home),
            "AMPLIFIER_HOME": str(elsewhere),
            "AMPLIFIERD_OFFLINE": "1",
            "NO_COLOR": "1",
        }
        dropped = ("AMPLIFIER", "ANTHROPIC_", "OPENAI_", "PYTHONDONTWRITEBYTECODE")
        self._environment = {n: v for n, v in os.environ.items() if not n.startswith(dropped)} | own
        self._work = home.parent

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "amplifier_cli", *arguments],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def whole(self, *arguments: str) -> float:
        """Return the ms that a command takes from its start to its end."""
        started = time.perf_counter()
        process = self.start(arguments)
        _, errors = process.communicate(timeout=1_800)
        elapsed_ms = (time.perf_counter() - started) * 1e3
        if process.returncode:
            raise MeasurementFailed(f"amplifier {' '.join(arguments)}: {errors}")
        return elapsed_ms

    def first_word(self) -> float:
        """Return the ms until the first piece of an answer is there."""
        started = time.perf_counter()
        with self.start(["run", "--profile", "offline", "-o", "jsonl", "Hello"]) as process:
            assert process.stdout
            for line in process.stdout:
                if json.loads(line)["event"] in FIRST_WORDS:
                    elapsed_ms = (time.perf_counter() - started) * 1e3
                    process.communicate(timeout=60)
                    return elapsed_ms
            raise MeasurementFailed(f"amplifier run: {process.stderr.read() if process.stderr else ''}")


class ChatAtTerminal:
    """A chat with a model at a pseudo-terminal."""

    def __init__(self, work: Path, provider: Mapping[str, Any]) -> None:
        plan = {
            "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
            "providers": [provider],
        }
        file = work / "chat.json"
        file.write_text(json.dumps(plan))
        environment = {
            **os.environ,
            "AMPLIFIERD_HOME": str(work / "chat"),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "NO_COLOR": "1",
        }
        command = ["-m", "amplifier_cli", "chat", "--plan", str(file)]
        self._process = pexpect.spawn(
            sys.executable, command, cwd=str(work), env=environment, encoding="utf-8", timeout=60, dimensions=(30, 100)
        )
        self._process.delaybeforesend = None
        self.until("Ctrl-D ends the chat")
        time.sleep(0.5)

    def until(self, text: str) -> None:
        self._process.expect_exact(text)

    def press(self, keys: str) -> None:
        self._process.send(keys)

    def wait_for(self, keys: str, text: str) -> float:
        """Return the ms from a key to a text on the screen."""
        begun = time.perf_counter()
        self.press(keys)
        self.until(text)
        return (time.perf_counter() - begun) * 1e3

    def end(self) -> None:
        self._process.close(force=True)


def chat_rows(work: Path, rounds: int) -> list[Row]:
    """Measure a chat with a model that speaks; each limit is one of what a person notices."""
    signs, closings, ends = [], [], []
    with OpenAIServer() as vendor:
        vendor.always = Said("Once upon a time. " * 2_000, stream={"delay": 0.01})
        config = {"api_key": KEY, "base_url": vendor.base_url}
        chat = ChatAtTerminal(work, {"module": "provider-openai", "config": config})
        for number in range(rounds):
            signs.append(chat.wait_for("Tell\r", "> Tell"))
            while len(vendor.requests) <= number:
                time.sleep(0.01)
            time.sleep(1.5)
            begun = time.perf_counter()
            chat.press("\x03")
            while not vendor.requests[number].disconnected:
                time.sleep(0.001)
            closings.append((time.perf_counter() - begun) * 1e3)
            chat.until("cancelled")
            ends.append((time.perf_counter() - begun) * 1e3)
            time.sleep(1)
        chat.end()
    measured = (
        ("first sign after Enter", signs, 50),
        ("Ctrl-C until the vendor's connection is closed", closings, 200),
        ("Ctrl-C until the turn has ended", ends, 500),
    )
    return [
        Row(label, "ms", {"ours": Figure(samples)}, [Target("median", statistics.median(samples), limit, "ms")])
        for label, samples, limit in measured
    ]


def imported(code: str) -> float:
    return seconds_until_ready(sys.executable, code) * 1e3


def row(report: Report, label: str, sides: Mapping[str, Side], limit: float, rounds: int) -> Row:
    figures = {side: Figure(found) for side, found in in_turn(report, label, sides, rounds).items() if found}
    return Row(label, "ms", figures, [Target("ours/floor", times(figures, "ours", "floor"), limit, "×")])


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how long a person waits for the command.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds, with 500 sessions")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    given = parser.parse_args()
    rounds, sessions = (5, 500) if given.quick else (20, 100_000)
    report = Report("cli", peer=None)
    with tempfile.TemporaryDirectory() as directory:
        command, many = Command(Path(directory) / "home"), Path(directory) / "many"
        first = [
            row(
                report,
                name,
                {"ours": partial(command.whole, name), "floor": lambda: imported(TYPER)},
                1.5,
                rounds,
            )
            for name in ("--help", "version")
        ]
        report.add("start, against importing typer", first)
        report.add("a chat at a pseudo-terminal", chat_rows(Path(directory), 3 if given.quick else 10))
        command.first_word()  # compiles the profile
        sides: dict[str, Side] = {"ours": command.first_word, "floor": lambda: imported(DRAWING)}
        report.add("first word, against importing amplifierd and what draws", [row(report, "run", sides, 2, rounds)])
        write_sessions(Paths.from_environment(many, environ={}).sessions, sessions)
        crowded = Command(many)
        crowded.whole("session", "list")  # builds the index
        sides = {"ours": lambda: crowded.whole("session", "list"), "floor": lambda: crowded.whole("version")}
        report.add(f"{sessions:,} sessions, against version", [row(report, "session list", sides, 1.5, rounds)])
    return report.finish(check=given.check)


if __name__ == "__main__":
    sys.exit(main())
