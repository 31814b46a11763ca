"""Kills the command in the middle of turns, each time on the same session, and looks at what is left.

    python tests/soak command_soak --kills 100 --seed 1 --way continue

Every command goes on with the session that the one before was killed on, so a session that a kill spoils fails the
next. `run` is killed at events that it prints, `continue` at what is seen on its terminal.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import warm_python
from terminal import CTRL_D, Terminal, in_terminal, in_warm_terminal

Way = Literal["run", "continue"]

_EVENTS = {  # the last event that is printed, and how long the command may go on after it
    "user_message:saved": 0.05,
    "provider:request": 0.05,
    "llm:stream_block_delta": 0.02,
    "tool:pre": 0.01,
    "tool:intent": 0.05,
    "tool:outcome": 0.05,
}
_SEEN = {  # the last that is seen on the terminal, and how long the command may go on after it
    "Enter steers": 0.1,
    "● bash": 0.05,
    "● read_file": 0.05,
    "└": 0.1,
}
_PLAN = {
    "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-mock", "config": {"mode": "agent"}}],
    "tools": [{"module": "tool-filesystem"}, {"module": "tool-bash", "config": {"sandbox": "off"}}],
}


class Command:
    """The command with a home and a working directory below a folder, and one session in it.

    Each call starts an interpreter, unless there is a keeper to fork them.
    """

    def __init__(self, folder: Path, keeper: warm_python.Keeper | None = None) -> None:
        self._keeper = keeper
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.plan = folder / "plan.json"
        self.plan.write_text(json.dumps(_PLAN))
        (self.work / "notes.md").write_text("# Notes\n")
        (self.work / "runs.txt").touch()
        dropped = ("AMPLIFIER", "ANTHROPIC_", "OPENAI_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        own = {"AMPLIFIERD_HOME": str(folder / "home"), "AMPLIFIERD_OFFLINE": "1", "NO_COLOR": "1"}
        self.environment = {**kept, **own}
        self.asked: list[str] = []
        self._has_begun = self._is_broken = False

    @staticmethod
    def command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "amplifier_cli", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        options: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        options |= {"cwd": self.work, "env": self.environment}
        if self._keeper is not None:
            return warm_python.Popen(self.command(arguments), keeper=self._keeper, **options)
        return subprocess.Popen(self.command(arguments), **options)

    def in_terminal(self, arguments: Sequence[str], environment: Mapping[str, str], columns: int) -> Any:
        if self._keeper is not None:
            return in_warm_terminal(self.command(arguments), self._keeper, self.work, environment, columns)
        return in_terminal(self.command(arguments), cwd=self.work, environment=environment, columns=columns)

    def answer(self, *arguments: str) -> Any:
        """Return the JSON that the command prints.

        Raises:
            SystemExit: it failed.
        """
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        if process.returncode:
            raise SystemExit(f"amplifier {' '.join(arguments)} failed with {process.returncode}: {err}")
        return json.loads(out)

    def run_until(self, event: str, delay_s: float, prompt: str) -> bool:
        """Run a prompt and kill the command some time after an event; False when it was done before."""
        which = ("--resume", "last") if self._has_begun else ("--plan", str(self.plan))
        process = self.start("run", *which, "--yes", "-o", "jsonl", prompt)
        assert process.stdout is not None
        shown: list[str] = []
        for line in process.stdout:
            if not line.endswith("\n"):  # more than a pipe holds, and killed while it was written
                break
            shown.append(json.loads(line)["event"])
            if shown.count(event) == 1 and shown[-1] == event:
                time.sleep(delay_s)
                process.kill()
        _, err = process.communicate(timeout=60)
        code = process.wait()
        if code > 0 or not shown:
            raise SystemExit(f"a run failed by itself with {code}: {err}")
        self._note(prompt, is_stored="user_message:saved" in shown)
        return code < 0

    def continue_until(self, seen: str, delay_s: float, prompt: str) -> bool:
        """Type a prompt and kill the command some time after something is seen; False if that was too late."""
        terminal = self.terminal()
        terminal.type(prompt)
        if terminal.expect_any(seen, "tokens") == "tokens":
            raise SystemExit(f"a turn came to its end without {seen!r}: {terminal.read}")
        time.sleep(delay_s)
        is_stored = "●" in terminal.read + terminal.kill()
        self._note(prompt, is_stored=is_stored)
        is_cut = self._last_step(prompt) not in (self.work / "runs.txt").read_text().split()
        self._is_broken = is_cut and is_stored
        return is_cut

    @staticmethod
    def _last_step(prompt: str) -> str:
        """Return what the last command of a prompt writes; the terminal shows it later than it happens."""
        return prompt.rpartition("echo ")[2].partition(" ")[0]

    def terminal(self) -> Terminal:
        """Return a terminal in which the session goes on; it begins in a chat."""
        which = ("continue",) if self._has_begun else ("chat", "--plan", str(self.plan))
        terminal = Terminal(self, *which, "--yes")
        terminal.expect(">")
        if self._is_broken and "the session has been repaired" not in terminal.read:
            raise SystemExit(f"nothing is said about the turn that was cut: {terminal.read}")
        return terminal

    def _note(self, prompt: str, *, is_stored: bool) -> None:
        self._has_begun = True
        if is_stored:
            self.asked.append(prompt)


def soak(folder: Path, kills: int, seed: int, way: Way, keeper: warm_python.Keeper | None = None) -> Counter[str]:
    """Kill so many commands; returns how often each moment was hit.

    Raises:
        SystemExit: a session does not go on, or something of it is lost, or done twice.
    """
    chance, command, met = random.Random(seed), Command(folder, keeper), Counter[str]()
    moments, kill = (_EVENTS, command.run_until) if way == "run" else (_SEEN, command.continue_until)
    number = 0
    while met.total() < kills:
        number += 1
        moment = chance.choice(sorted(moments))
        prompt = f"run `echo {number}a >> runs.txt` then read notes.md then run `echo {number}b >> runs.txt`"
        if kill(moment, chance.uniform(0, moments[moment]), prompt):
            met[f"killed after {moment}"] += 1
    _go_on(command, way)
    _check(command)
    return met


def _go_on(command: Command, way: Way) -> None:
    if way == "run":
        done = command.answer("run", "--resume", "last", "--yes", "-o", "json", "read notes.md")
        if done["status"] != "completed":
            raise SystemExit(f"the session does not go on: {done}")
        return
    terminal = command.terminal()
    terminal.type("read notes.md")
    terminal.expect("tokens")
    terminal.press(CTRL_D)
    if terminal.end():
        raise SystemExit(f"the session does not go on: {terminal.read}")


def _check(command: Command) -> None:
    if len(sessions := command.answer("session", "list", "--json")) != 1:
        raise SystemExit(f"there should be one session: {sessions}")
    messages: Sequence[dict[str, Any]] = command.answer("session", "show", "last", "--json")["messages"]
    said = json.dumps([message for message in messages if message["role"] == "user"])
    lost = [prompt for prompt in command.asked if json.dumps(prompt)[1:-1] not in said]
    calls = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    answered = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
    lines = Counter((command.work / "runs.txt").read_text().split())
    twice = [line for line, count in lines.items() if count > 1]
    if lost or twice or calls != answered or not lines:
        facts = f"lost: {lost}; done twice: {twice}; calls without a result: {calls ^ answered}"
        raise SystemExit(f"{facts}; commands run: {lines.total()}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=random.randrange(10_000))
    arguments.add_argument("--way", choices=("run", "continue"), default="continue")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="amplifier-command-soak-")).resolve()
    begun_s = time.monotonic()
    try:
        met = soak(folder, given.kills, given.seed, given.way)
    except SystemExit:
        sys.stderr.write(f"seed {given.seed}, see {folder}\n")
        raise
    shutil.rmtree(folder)
    took_s = time.monotonic() - begun_s
    sys.stdout.write(f"{given.kills} kills of amplifier {given.way}, seed {given.seed}, {took_s:.0f} s\n")
    for what, count in sorted(met.items()):
        sys.stdout.write(f"  {count:4} {what}\n")


if __name__ == "__main__":
    main()
