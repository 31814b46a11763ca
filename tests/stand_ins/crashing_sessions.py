"""What a process does that is killed in the middle of it: it opens a session and runs turns on it.

Everything that is shown of the session goes to a pipe, in the moment in which it is shown.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import amplifierd
from amplifierd.exceptions import SessionNotFoundError
from amplifierd.home import Home

MODULES = Path(__file__).parent / "crash_modules"
TURNS = 3
_TOOLS = ("look", "note", "send", "bash", "background", "read_file", "task")
_LOOPS = ("loop-streaming", "loop-basic", "loop-events")
_CONTEXTS = ("context-simple", "context-persistent")
_PACES = ("slow", "quick", "quick")
_KEPT = ("text", "request_id", "message_id", "content", "turn", "tool_call_id", "status")


def make_place(folder: Path) -> None:
    """Make the working directory of the sessions in a folder."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "notes.md").write_text("# Notes\n")
    (work / "runs.txt").touch()


def open_home(folder: Path) -> Home:
    return amplifierd.open_home(folder / "home", offline=True, overrides={"security": {"module_roots": [str(MODULES)]}})


def plan(folder: Path, number: int = 0) -> dict[str, Any]:
    """Return the plan of a session; by their number sessions have different loops and contexts."""
    work = folder / "work"
    provider = {"complaints": str(folder / "complaints.txt")}
    return {
        "session": {
            "orchestrator": {"module": _LOOPS[number % len(_LOOPS)]},
            "context": {"module": _CONTEXTS[number % len(_CONTEXTS)]},
        },
        "providers": [_local("provider-rehearsed", provider)],
        "tools": [
            _local("tool-traced", {"folder": str(work)}),
            {"module": "tool-filesystem"},
            {"module": "tool-bash", "config": {"safety_profile": "permissive"}},
            {"module": "tool-task"},
        ],
        "agents": {"helper": {"description": "Helps", "instruction": "You help."}},
    }


def run_turns(folder: Path, session_id: str, run: int | None, output: int) -> None:
    """Open the session, make it if there is none, and run turns on it, none without a number of the run.

    The pipe `output` gets what is shown.
    """
    asyncio.run(_run_turns(folder, session_id, run, output))


async def _run_turns(folder: Path, session_id: str, run: int | None, output: int) -> None:
    def tell(event: dict[str, Any]) -> bool:
        data = event.get("data") or {}
        shown = {**event, "data": {key: data[key] for key in _KEPT if key in data}, "at": time.monotonic()}
        os.write(output, json.dumps(shown).encode() + b"\n")
        return False

    home = open_home(folder)
    tell({"event": "opening"})
    try:
        home.sessions.get(session_id)
        opening = home.sessions.resume(session_id)
    except SessionNotFoundError:
        made_of = plan(folder, int(session_id.rpartition("-")[2]))
        opening = home.sessions.open(plan=made_of, working_dir=folder / "work", session_id=session_id)
    async with opening as session:
        tell({"event": "opened"})
        session.subscribe(tell)
        for prompt in prompts(run) if run is not None else ():
            result = await session.execute(prompt)
            assert result.status == "completed", result


def prompts(run: int) -> Sequence[str]:
    """Return the prompts of a run: some call tools, several at once, and some are answered slowly."""
    chosen = random.Random(run)
    return [
        f"{chosen.choice(_PACES)}{run}t{turn}: {' '.join(chosen.sample(_TOOLS, chosen.randrange(4)))}"
        for turn in range(TURNS)
    ]


def _local(module: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"module": module, "source": str(MODULES / module), "config": config}
