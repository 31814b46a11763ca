"""Three daemons that share one store, as real processes, and clients of theirs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

sys.path.append(str(Path(__file__).parents[1] / "stand_ins"))

from daemon_process import DaemonProcess

MODULES = Path(__file__).parents[1] / "stand_ins/worker_modules"
FAULTS = {"module": "tool-faults", "source": str(MODULES / "tool-faults")}
TOKEN = "of-the-cluster-0123456789-0123456789"
WAITS = {"tool_calls": [{"name": "fault", "arguments": {"fault": "wait"}}]}
PATIENCE_S = 60.0

T = Any


class Member:
    """One daemon with a home of its own."""

    def __init__(self, home: Path, store: str) -> None:
        settings = {"store": store, "security": {"module_roots": [str(MODULES)]}, "workers": {"max_processes": 2}}
        environment = {"AMPLIFIERD_CLUSTER__TOKEN": TOKEN}
        self.process = DaemonProcess(home, settings, environment=environment)
        self._stopped: list[int] = []

    def start(self) -> None:
        self.process.start()
        headers = {"Authorization": f"Bearer {self.process.token}"}
        self.api = httpx2.Client(base_url=f"{self.process.url}/api/v1", headers=headers, timeout=PATIENCE_S)
        self.member_id = str(self.api.get("/cluster").json()["member_id"])

    def stop_processes(self) -> None:
        """Stop it and its workers in their tracks."""
        self._stopped = [*_children(self.process.pid), self.process.pid]
        for pid in self._stopped:
            os.kill(pid, signal.SIGSTOP)

    def let_go_on(self) -> None:
        for pid in reversed(self._stopped):
            os.kill(pid, signal.SIGCONT)
        self._stopped = []

    def end(self) -> None:
        self.let_go_on()
        self.api.close()
        self.process.stop()


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    own = [int(word) for word in text.split()]
    return [below for child in own for below in _children(child)] + own


class Members:
    """The daemons of one cluster; those that ended are started again when they are needed."""

    def __init__(self, folder: Path, store: str) -> None:
        self.store, self._folder = store, folder
        self._all = [Member(folder / f"home{number}", store) for number in range(3)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(Member.start, self._all))
        until(lambda: all(self._sees_all(member) for member in self._all))

    def _sees_all(self, member: Member) -> bool:
        live = [one for one in member.api.get("/cluster").json()["members"] if one["state"] == "active"]
        return {one["member_id"] for one in live} >= {other.member_id for other in self._all}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all)

    def session(self, at: Member, *script: Any, **more: Any) -> str:
        """Create a session whose model says a script; its working directory is named like it."""
        provider = {"script": [*script], "on_exhausted": "canned", "tool_trigger": None, "stream_delay_ms": 5}
        plan = {
            "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
            "providers": [{"module": "provider-mock", "config": provider}],
            "tools": [FAULTS],
            "hooks": [],
            "agents": {},
        }
        folder = self._folder / f"work{time.monotonic_ns()}"
        folder.mkdir()
        created = at.api.post("/sessions", json={"mount_plan": plan, "working_dir": str(folder), **more})
        assert created.status_code == 201, created.text
        return str(created.json()["session_id"])

    def folder_of(self, session_id: str) -> Path:
        member = next(one for one in self._all)
        return Path(member.api.get(f"/sessions/{session_id}").json()["working_dir"])

    def end(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Member.end, self._all))


def until(condition: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
    return found


class Watcher:
    """Somebody who watches a stream from now on, in a thread."""

    def __init__(self, client: httpx2.Client, path: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._is_connected = threading.Event()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(client, path), daemon=True)
        self._thread.start()
        assert self._is_connected.wait(PATIENCE_S)

    def _read(self, client: httpx2.Client, path: str) -> None:
        try:
            with client.stream("GET", path) as response:
                for line in response.iter_lines():
                    if self._leave.is_set():
                        return
                    if line.startswith("data: "):
                        self.events.append(json.loads(line.removeprefix("data: ")))
                        self._is_connected.set()
        except httpx2.TransportError:
            return

    def names(self, session_id: str | None = None) -> list[str]:
        return [one["event"] for one in self.events if session_id in (None, one["session_id"])]

    def numbers(self, session_id: str) -> list[int]:
        """Return the numbers of a session's events, up to the end of its turn."""
        own = [one for one in tuple(self.events) if one["session_id"] == session_id and one["sequence"]]
        ends = [place for place, one in enumerate(own, start=1) if one["event"] == "execution:done"]
        return [one["sequence"] for one in own[: ends[-1] if ends else None]]

    def leave(self) -> None:
        self._leave.set()


@contextmanager
def watching(client: httpx2.Client, path: str) -> Iterator[Watcher]:
    watcher = Watcher(client, path)
    try:
        yield watcher
    finally:
        watcher.leave()
