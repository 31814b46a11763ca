"""Kills a process at every step of a repair, each time on a copy of the same broken session, and looks at what is left.

python tests/soak killed_repairs POINTS
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from crash_soak import Moment, kill_worker
from crashing_sessions import make_place, open_home, run_turns
from kill_points import count_changes, import_modules_of, kill_at, spread, succeeds

from amplifier_core.utils.tool_messages import calls_in, results_in

SESSION = "broken-0"


def resume(folder: Path) -> None:
    asyncio.run(_resume(folder))


async def _resume(folder: Path) -> None:
    async with open_home(folder).sessions.resume(SESSION):
        pass


def look(folder: Path, was_killed_at: int) -> None:
    """See that the next process finishes the repair, and that all of it is told once."""
    asyncio.run(_look(folder, was_killed_at))


async def _look(folder: Path, was_killed_at: int) -> None:
    home = open_home(folder)
    async with home.sessions.resume(SESSION) as session:
        repaired = session.repaired
    async with home.sessions.resume(SESSION) as again:
        assert not again.repaired
    told = Counter(event["event"] for event in home.sessions.events(SESSION))
    messages, record = home.sessions.messages(SESSION), home.sessions.get(SESSION)
    assert (told["session:repaired"], told["execution:done"]) == (1, told["user_message:saved"]), (was_killed_at, told)
    assert repaired or told["session:repaired"]
    calls = [call for message in messages for call in calls_in(message)]
    assert len(calls) == sum(len(results_in(message) or ()) for message in messages)
    assert [message["metadata"] for message in messages[-1:]] == [{"interrupted": True}]
    assert record.usage is not None
    assert record.usage["tokens"]["total"] == 100 * told["response:stored"]
    assert record.usage["tool_calls"] == told["tool:intent"]
    assert (record.turn_count, record.message_count) == (messages[-1]["turn"], len(messages))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="amplifier-repairs-")).resolve()
    broken = folder / "broken"
    make_place(broken)
    import_modules_of(lambda: run_turns(broken, "rehearsal-0", 0, os.open(os.devnull, os.O_WRONLY)))
    run = next(n for n in range(1000) if kill_worker(broken, SESSION, n, Moment("tool:intent", 1, 0.0)) is not None)

    def fresh() -> Path:
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(broken, copy)
        return copy

    copy = fresh()
    points = spread(count_changes(lambda: resume(copy)), int(sys.argv[1]))
    for point in points:
        copy = fresh()
        kill_at(point, lambda: resume(copy))  # noqa: B023 - it is called here
        if not succeeds(lambda: look(copy, point)):  # noqa: B023
            raise SystemExit(f"killed at change {point} of a repair (run {run}), and not whole: {copy}")
    shutil.rmtree(folder)
    sys.stdout.write(f"{len(points)} repairs were killed\n")


if __name__ == "__main__":
    main()
