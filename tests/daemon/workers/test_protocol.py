"""The page about the protocol says what a worker really does."""

import asyncio
import inspect
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

from agents_at_work import Agent

import amplifierd
from amplifierd.workers.placement import Placement
from amplifierd.workers.worker_methods import WorkerMethods

PAGE = (Path(__file__).parents[3] / "docs/worker-protocol.md").read_text(encoding="utf-8")
PATIENCE_S = 60.0


def table(heading: str) -> dict[str, list[str]]:
    """Return the first column of a table, with the names in the second."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)", PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0], re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", parameters) for name, parameters in rows}


def test_every_method_is_documented_with_its_parameters() -> None:
    methods = WorkerMethods(at_stop=lambda: None).table()

    assert table("What the daemon asks") == {
        name: [*inspect.signature(method).parameters] for name, method in methods.items()
    }


def test_every_notification_is_documented(tmp_path: Path) -> None:
    home = amplifierd.open_home(tmp_path / "home", offline=True)

    async def nothing(lost: Any = None) -> Any: ...

    placement = Placement(home.sessions, home.resolver, nothing, lambda event: None, nothing, patience_s=1)
    heard = {*placement.hears(), "heartbeat"}
    assert set(table("What the worker tells")) == heard


def fits(shown: Any, real: Any) -> bool:
    """Say whether a message is the one that is shown."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.keys() == real.keys() and all(fits(shown[key], real[key]) for key in shown)
    return bool(shown == real)


async def test_the_exchange_is_one_that_happens(tmp_path: Path) -> None:
    home = amplifierd.open_home(tmp_path / "home", offline=True)
    plan = Agent(["Good day."], tools=[]).sections()
    await home.sessions.create(plan=plan, working_dir=tmp_path, session_id="example")
    await home.sessions.close()
    ours, theirs = socket.socketpair()
    command = (sys.executable, "-m", "amplifierd.workers.worker", str(theirs.fileno()), str(os.getpid()), "MARKER")
    worker = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    reader, writer = await asyncio.open_unix_connection(sock=ours, limit=1 << 24)

    async with asyncio.timeout(PATIENCE_S):
        for line in re.findall(r"^([→←] .*)$", PAGE, re.MULTILINE):
            message = json.loads(line[2:].replace("HOME", str(home.paths.home)))
            if line[0] == "→":
                writer.write(json.dumps(message).encode() + b"\n")
                continue
            said = json.loads(await reader.readline())
            while not fits(message, said):
                assert "method" in said or "event" in said, f"the page shows {message}, the worker says {said}"
                said = json.loads(await reader.readline())
        assert await worker.wait() == 0
    writer.close()
    await writer.wait_closed()
