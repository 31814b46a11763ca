"""Kills the command `amplifier run` in the middle of turns, each time on the same session, and looks at what is left.

    python tests/stand_ins/command_soak.py --kills 100 --seed 1

Every run goes on with the session that the one before was killed on, so a session that a kill spoils fails the next.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MOMENTS = {  # the last event that is printed, and how long the command may go on after it
    "user_message:saved": 0.05,
    "provider:request": 0.05,
    "llm:stream_block_delta": 0.02,
    "tool:pre": 0.01,
    "tool:intent": 0.05,
    "tool:outcome": 0.05,
}
_PLAN = {
    "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-mock"}],
    "tools": [{"module": "tool-filesystem"}, {"module": "tool-bash", "config": {"sandbox": "off"}}],
}


class Command:
    """The command with a home and a working directory below a folder, and one session in it."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.plan = folder / "plan.json"
        self.plan.write_text(json.dumps(_PLAN))
        (self.work / "notes.md").write_text("# Notes\n")
        (self.work / "runs.txt").touch()
        dropped = ("AMPLIFIER", "ANTHROPIC_", "OPENAI_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        self._environment = {**kept, "AMPLIFIERD_HOME": str(folder / "home"), "AMPLIFIERD_OFFLINE": "1"}
        self.shown: list[dict[str, Any]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "amplifier_cli", *arguments],
            cwd=self.work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

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
        which = ("--resume", "last") if self.shown else ("--plan", str(self.plan))
        process = self.start("run", *which, "--yes", "-o", "jsonl", prompt)
        assert process.stdout is not None
        begun, killed = len(self.shown), False
        for line in process.stdout:
            self.shown.append(json.loads(line))
            if self.shown[-1]["event"] == event and not killed:
                time.sleep(delay_s)
                process.kill()
                killed = True
        _, err = process.communicate(timeout=60)
        if process.returncode > 0 or len(self.shown) == begun:
            raise SystemExit(f"a run failed by itself with {process.returncode}: {err}")
        return process.returncode < 0


def soak(folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kill so many commands; returns how often each moment was hit.

    Raises:
        SystemExit: a session does not go on, or something of it is lost, or done twice.
    """
    chance, command, met = random.Random(seed), Command(folder), Counter[str]()
    number = 0
    while met.total() < kills:
        number += 1
        event = chance.choice(sorted(_MOMENTS))
        prompt = f"run `echo {number}a >> runs.txt` then read notes.md then run `echo {number}b >> runs.txt`"
        if command.run_until(event, chance.uniform(0, _MOMENTS[event]), prompt):
            met[f"killed after {event}"] += 1
    done = command.answer("run", "--resume", "last", "--yes", "-o", "json", "read notes.md")
    if done["status"] != "completed":
        raise SystemExit(f"the session does not go on: {done}")
    _check(command, done["session_id"])
    return met


def _check(command: Command, session_id: str) -> None:
    messages: Sequence[dict[str, Any]] = command.answer("session", "show", session_id, "--json")["messages"]
    said = json.dumps([message for message in messages if message["role"] == "user"])
    asked = [event["data"]["content"] for event in command.shown if event["event"] == "user_message:saved"]
    lost = [prompt for prompt in asked if json.dumps(prompt)[1:-1] not in said]
    calls = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    answered = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
    lines = Counter((command.work / "runs.txt").read_text().split())
    twice = [line for line, count in lines.items() if count > 1]
    if lost or twice or calls != answered:
        raise SystemExit(f"lost: {lost}; done twice: {twice}; calls without a result: {calls ^ answered}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="amplifier-command-soak-")).resolve()
    begun_s = time.monotonic()
    try:
        met = soak(folder, given.kills, given.seed)
    except SystemExit:
        sys.stderr.write(f"seed {given.seed}, see {folder}\n")
        raise
    shutil.rmtree(folder)
    sys.stdout.write(f"{given.kills} kills of the command, seed {given.seed}, {time.monotonic() - begun_s:.0f} s\n")
    for what, count in sorted(met.items()):
        sys.stdout.write(f"  {count:4} {what}\n")


if __name__ == "__main__":
    main()
