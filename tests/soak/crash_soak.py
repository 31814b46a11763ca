"""Kills a process that runs a session, again and again at random moments, and looks each time at what is left.

    python tests/soak crash_soak --kills 100 --seed 1

Every process is forked from this one, which has imported all that they need and has no threads.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash_evidence import Crash, Evidence
from crashing_sessions import make_place, run_turns
from kill_points import import_modules_of, succeeds
from processes import Started

_SESSION_KILLS = 5  # then another session is begun
_MOMENTS = {  # the last sign of life, how often it is awaited at most, and how long the process may go on after it
    "opening": (1, 0.25),
    "user_message:saved": (2, 0.02),
    "request:stored": (3, 0.03),
    "llm:stream_block_delta": (25, 0.02),
    "assistant_message:partial": (2, 0.6),
    "response:stored": (3, 0.005),
    "tool:pre": (3, 0.005),
    "tool:intent": (4, 0.05),
    "tool:outcome": (3, 0.01),
    "execution:done": (2, 0.03),
    "opened": (1, 1.5),
}


@dataclass(frozen=True)
class Moment:
    """When a process is killed: some time after an event has been shown for the n-th time."""

    event: str
    count: int
    delay_s: float

    @classmethod
    def choose(cls, chance: random.Random) -> "Moment":
        event = chance.choice(sorted(_MOMENTS))
        most, longest_s = _MOMENTS[event]
        return cls(event, chance.randint(1, most), chance.uniform(0, longest_s))


def kill_worker(folder: Path, session_id: str, number: int | None, moment: Moment) -> Crash | None:
    """Let a process run turns, or only open the session, and kill it at a moment; None when it was done before."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run_turns(folder, session_id, number, writer)
            status = 0
        except BaseException:  # noqa: BLE001 - the child ends here, whatever happened
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    os.close(writer)
    shown: list[dict[str, Any]] = []
    seen, killed_at = 0, None
    with os.fdopen(reader) as lines:
        for line in lines:
            shown.append(json.loads(line))
            seen += shown[-1]["event"] == moment.event
            if seen == moment.count and killed_at is None:
                time.sleep(moment.delay_s)
                killed_at = time.monotonic()
                os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and killed_at is not None:
        return Crash(shown, killed_at)
    if status:
        raise SystemExit(f"run {number} failed by itself: {shown[-1]}")
    return None


def check(folder: Path, session_id: str, crash: Crash, known: set[str]) -> tuple[list[str], Counter[str]]:
    """Look at what is left, in a process of its own; returns the sessions that are whole, and the states of calls."""
    reader, writer = os.pipe()

    def look() -> None:
        evidence = Evidence(folder, crash, frozenset(known))
        whole = asyncio.run(evidence.check(session_id))
        os.write(writer, json.dumps([whole, evidence.states]).encode())

    if not succeeds(look):
        raise SystemExit(f"what is left in {folder} is not as it should be")
    os.close(writer)
    with os.fdopen(reader) as answer:
        whole, states = json.load(answer)
    return whole, Counter(states)


def soak(folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kill so many processes; returns how often each moment was hit, and each state of an interrupted call."""
    chance = random.Random(seed)
    marker = f"AMPLIFIER_CHILD_{uuid.uuid4().hex}"
    os.environ[marker] = "1"
    started, met = Started(marker), Counter[str]()
    known: set[str] = set()
    number = killed = 0
    while killed < kills:
        number += 1
        session_id = f"soak-{seed}-{killed // _SESSION_KILLS}"
        moment = Moment.choose(chance)
        crash = kill_worker(folder, session_id, seed * 10_000 + number, moment)
        started.wait_for(0)
        if crash is None:
            continue
        killed += 1
        met[f"killed after {moment.event}"] += 1
        if chance.random() < 0.25:  # once more, while it is resumed
            again = kill_worker(folder, session_id, None, Moment("opening", 1, chance.uniform(0, 0.2)))
            met["killed again while resuming"] += again is not None
        try:
            whole, states = check(folder, session_id, crash, known)
        except SystemExit:
            sys.stderr.write(f"seed {seed}, kill {killed}: {moment}\n")
            raise
        known |= {*whole} - {session_id}
        met += states
    return met


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=random.randrange(10_000))
    arguments.add_argument("--keep", action="store_true", help="keep the directory")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="amplifier-soak-", dir="/var/tmp")).resolve()  # a sandbox has its own /tmp
    make_place(folder)
    import_modules_of(lambda: run_turns(folder, "rehearsal-1", 0, os.open(os.devnull, os.O_WRONLY)))
    begun_s = time.monotonic()
    met = soak(folder, given.kills, given.seed)
    if not given.keep:
        shutil.rmtree(folder)
    sys.stdout.write(f"{given.kills} kills, seed {given.seed}, {time.monotonic() - begun_s:.0f} s\n")
    for what, count in sorted(met.items()):
        sys.stdout.write(f"  {count:4} {what}\n")


if __name__ == "__main__":
    main()
