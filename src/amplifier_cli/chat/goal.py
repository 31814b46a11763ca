"""Working on until a command succeeds, or a limit is reached."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from amplifier_cli.failures import UsageError
from amplifier_system.processes import ProcessTree, reading
from amplifierd.sessions.turn_result import TurnResult

USAGE = "/goal TEXT --check COMMAND [--max-turns N] [--max-cost USD]"
_MOST_OUTPUT = 4_000


@dataclass(frozen=True)
class Goal:
    """What is to be reached, how that is seen, and how much may be spent on it."""

    text: str
    check: str
    max_turns: int = 10
    max_cost: float | None = None


def read_goal(text: str) -> Goal:
    """Return the goal that a line describes.

    Raises:
        UsageError: it does not describe one.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--check", default="")
    parser.add_argument("--max-turns", type=int, default=10)
    parser.add_argument("--max-cost", type=float)
    try:
        known, words = parser.parse_known_args(shlex.split(text))
    except (argparse.ArgumentError, ValueError) as error:
        raise UsageError(str(error), hint=USAGE) from error
    if not words or not known.check or known.max_turns < 1:
        raise UsageError("a goal needs a text and a command that checks it", hint=USAGE)
    return Goal(" ".join(words), known.check, known.max_turns, known.max_cost)


async def pursue(
    goal: Goal,
    working_dir: Path,
    execute: Callable[[str], Awaitable[TurnResult]],
    tell: Callable[[str], None],
) -> bool:
    """Run turns until the check succeeds; return whether it did."""
    prompt = f"{goal.text}\n\nYou are done when this command succeeds: {goal.check}"
    cost = 0.0
    for turn in range(1, goal.max_turns + 1):
        result = await execute(prompt)
        if result.status != "completed":
            tell(f"goal: the turn was {result.status}, so the goal is given up")
            return False
        cost += float(result.usage.get("cost_usd") or 0)
        code, output = await _check(goal.check, working_dir)
        if code == 0:
            tell(f"goal: reached after {turn} turns")
            return True
        if goal.max_cost is not None and cost >= goal.max_cost:
            tell(f"goal: not reached, and ${goal.max_cost:g} is spent")
            return False
        tell(f"goal: {goal.check} failed with {code} after turn {turn} of {goal.max_turns}")
        prompt = (
            f"`{goal.check}` exited with {code}:\n\n{output[-_MOST_OUTPUT:]}\n\nContinue with the goal: {goal.text}"
        )
    tell(f"goal: not reached within {goal.max_turns} turns")
    return False


async def _check(command: str, working_dir: Path) -> tuple[int, str]:
    """Run a command in a shell, which is ended with everything it started when the caller is interrupted."""
    tree = await ProcessTree.start(
        ["/bin/sh", "-c", command], environment=os.environ, cwd=working_dir, stderr=subprocess.STDOUT
    )
    async with tree, reading(tree.stdout) as stream:
        output = await stream.read()
        code = await tree.wait()
    return code, output.decode("utf-8", "replace")
