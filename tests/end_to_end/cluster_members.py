"""Three daemons that share one store, as real processes, and clients of theirs."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import warm_python
from daemon_process import DaemonProcess

from amplifierd.store_address import StoreAddress

MODULES = Path(__file__).parents[1] / "stand_ins/worker_modules"
FAULTS = {"module": "tool-faults", "source": str(MODULES / "tool-faults")}
TOKEN = "of-the-cluster-0123456789-0123456789"
WAITS = {"tool_calls": [{"name": "fault", "arguments": {"fault": "wait"}}]}
PATIENCE_S = 60.0

T = Any


class Member:
    """One daemon with a home of its own; `source` has another version of the program."""

    def __init__(self, home: Path, store: str, token: str = TOKEN, source: Path | None = None) -> None:
        settings = {"store": store, "security": {"module_roots": [str(MODULES)]}, "workers": {"max_processes": 2}}
        environment = {"AMPLIFIERD_CLUSTER__TOKEN": token} | ({"PYTHONPATH": str(source)} if source else {})
        keeper = None if source else warm_python.shared_keeper()
        self.process = DaemonProcess(home, settings, environment=environment, keeper=keeper)
        self._stopped: list[int] = []
        self._clients: list[httpx2.Client] = []

    def start(self) -> None:
        self.process.start()
        self.api = self.client(self.process.token)
        self.member_id = self.find_id()

    def find_id(self) -> str:
        """Return who it is at the moment; one that was fenced is another member afterwards."""
        return str(self.api.get("/cluster").json()["member_id"])

    def state_of(self, other: Member) -> str:
        return str(self._known(other)["state"])

    def holds_of(self, other: Member) -> int:
        return int(self._known(other)["holds"])

    def _known(self, other: Member) -> dict[str, Any]:
        members = self.api.get("/cluster").json()["members"]
        return next(one for one in members if one["member_id"] == other.member_id)

    def client(self, token: str) -> httpx2.Client:
        """Return a client of whoever has a token, and talks to this member."""
        headers = {"Authorization": f"Bearer {token}"}
        client = httpx2.Client(base_url=f"{self.process.url}/api/v1", headers=headers, timeout=PATIENCE_S)
        self._clients.append(client)
        return client

    def new_token(self, name: str) -> str:
        """Make a token that may run sessions of its own."""
        return str(self.api.post("/tokens", json={"name": name, "scope": "run"}).json()["token"])

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
        for client in self._clients:
            client.close()
        self.process.stop()


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    own = [int(word) for word in text.split()]
    return [below for child in own for below in _children(child)] + own


class Members:
    """The daemons of one cluster; those that ended are started again when they are needed."""

    def __init__(self, folder: Path, store: str, sources: Sequence[Path | None] = (None, None, None)) -> None:
        self.store, self._folder = store, folder
        self.folders: dict[str, Path] = {}
        self._all = [Member(folder / f"home{number}", store, source=one) for number, one in enumerate(sources)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(Member.start, self._all))
        until(lambda: all(self._sees_all(member) for member in self._all))

    def _sees_all(self, member: Member) -> bool:
        live = [one for one in member.api.get("/cluster").json()["members"] if one["state"] == "active"]
        return {one["member_id"] for one in live} >= {other.member_id for other in self._all}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all)

    def session(self, at: Member, *script: Any, client: httpx2.Client | None = None, **more: Any) -> str:
        """Create a session whose model says a script; its working directory is in `folders`."""
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
        created = (client or at.api).post("/sessions", json={"mount_plan": plan, "working_dir": str(folder), **more})
        assert created.status_code == 201, created.text
        session_id = str(created.json()["session_id"])
        self.folders[session_id] = folder
        return session_id

    @contextmanager
    def address_of(self, member: Member, address: str) -> Iterator[None]:
        """Have the store say that a member is reached somewhere else, while the block runs."""
        store = StoreAddress.parse(self.store)
        with psycopg.connect(store.conninfo, autocommit=True, options=f"-c search_path={store.schema}") as database:
            changing = "UPDATE members SET address = %s WHERE member_id = %s"
            database.execute(changing, [address, member.member_id])
            try:
                yield
            finally:
                database.execute(changing, [member.process.url, member.member_id])

    def end(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Member.end, self._all))


@contextmanager
def impostor() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Someone who answers everything with yes; yields where, and what was said to whom it takes itself for."""
    heard: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard[self.path] = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"channel_id": "1", "nonce": "2", "proof": "3"}')

        do_GET = do_POST

        def log_message(self, *said: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()


def until(condition: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
    return found


class Watcher:
    """Somebody who watches a stream, in a thread."""

    def __init__(self, client: httpx2.Client, path: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._is_connected = threading.Event()
        url, authorization = client.base_url, client.headers["Authorization"]
        self._connection = HTTPConnection(url.host, url.port, timeout=PATIENCE_S)
        self._connection.request("GET", f"{url.path.rstrip('/')}{path}", headers={"Authorization": authorization})
        self._response = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._is_connected.wait(PATIENCE_S)

    def _read(self) -> None:
        with suppress(OSError, ValueError):  # whoever leaves closes the connection
            for line in self._response:
                if line.startswith(b"data: "):
                    self.events.append(json.loads(line.removeprefix(b"data: ")))
                    self._is_connected.set()

    def names(self, session_id: str | None = None) -> list[str]:
        return [one["event"] for one in tuple(self.events) if session_id in (None, one["session_id"])]

    def numbers(self, session_id: str) -> list[int]:
        """Return the numbers of a session's events, up to the end of its turn."""
        own = [one for one in tuple(self.events) if one["session_id"] == session_id and one["sequence"]]
        ends = [place for place, one in enumerate(own, start=1) if one["event"] == "execution:done"]
        return [one["sequence"] for one in own[: ends[-1] if ends else None]]

    def leave(self) -> None:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._response.close()
        self._connection.close()


@contextmanager
def watching(client: httpx2.Client, path: str) -> Iterator[Watcher]:
    watcher = Watcher(client, path)
    try:
        yield watcher
    finally:
        watcher.leave()
