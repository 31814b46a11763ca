"""A served daemon to ask, and what it answers."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from api_operations import PATHS, QUERIES, Operation, bodies
from real_server import RealServer, plan

from amplifierd.server.auth.callers import Caller
from amplifierd.store.hold import Holder

MODULES = Path(__file__).parents[3] / "stand_ins/worker_modules"
T = TypeVar("T")

CANARIES = {
    "a stored key": "canary-of-a-stored-key-77c0ffee",
    "the settings": "canary-of-the-settings-6a5b4c3d",
    "a profile": "canary-of-a-profile-3d2c1b0a",
    "an override": "canary-of-an-override-40f1e2d3",
}
"""Secrets that no answer to any request may have."""


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """The word of a problem, as the façade tells it, too; empty where there is none."""
        document = self.json() if self.text.startswith("{") else {}
        return str(document.get("code") or document.get("error", {}).get("code") or "")


@dataclass
class World:
    """A served daemon, and requests to it exactly as they are written: nothing is tidied up on the way."""

    server: RealServer
    operations: list[Operation]
    session_id: str
    token_of: Mapping[str, str]

    def send(self, method: str, url: str, *, caller: str = "admin", body: Any = None, **headers: str) -> Answer:
        address = urlsplit(self.server.url)
        connection = HTTPConnection(str(address.hostname), address.port, timeout=120)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if caller:
            given["Authorization"] = f"Bearer {self.token_of[caller]}"
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, url, body if isinstance(body, bytes | None) else json.dumps(body), given)
            answer = connection.getresponse()
            is_stream = answer.getheader("Content-Type", "").startswith("text/event-stream")
            text = "" if is_stream else answer.read().decode("utf-8", "replace")
            assert not [what for what, canary in CANARIES.items() if canary in text], f"{method} {url}: {text}"
            return Answer(answer.status, text)
        finally:
            connection.close()

    def request(
        self,
        operation: Operation,
        *,
        caller: str = "admin",
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """Send the sample of an operation, with some of its parts replaced."""
        values = {**PATHS, "session_id": self.session_id, **(path or {})}
        asked = {**QUERIES.get(operation.name, {}), **(query or {})}
        url = operation.url(values) + (f"?{urlencode(asked)}" if asked else "")
        body = more.pop("body", bodies().get(operation.name))
        return self.send(operation.method, url, caller=caller, body=body, **more)

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.send("GET", f"/api/v1{path}").json()
        return found

    def folder(self, name: str) -> Path:
        """Return a new directory beside the home."""
        folder = self.server.home.paths.home.parent / name
        folder.mkdir()
        return folder

    def session(self, *script: Any, asked: Mapping[str, Any] | None = None, **mock: Any) -> str:
        """Create a session whose model says these things; `asked` is what else the request says."""
        created = self.send("POST", "/api/v1/sessions", body={"mount_plan": plan(*script, **mock), **(asked or {})})
        assert created.status == 201, created.text
        return str(created.json()["session_id"])

    def change_record(self, session_id: str, **fields: Any) -> None:
        """Write something else into the record of a session."""
        file = self.server.home.paths.sessions / session_id / "metadata.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    @contextmanager
    def held(self, session_id: str) -> Iterator[None]:
        """Let another program hold a session as long as the block runs."""
        store = self.server.home.sessions.runtime.store
        hold = self.on_loop(store.acquire(session_id, Holder.of_this_process("another")))
        yield
        self.on_loop(store.release(hold))

    def operation(self) -> str:
        """Begin an operation that takes long, and return its id."""

        async def begin() -> str:
            work, caller = partial(asyncio.sleep, 600), Caller("default", "default", "admin")
            return str(self.server.daemon.operations.start("sample", "", work, caller=caller).id)

        return self.on_loop(begin())

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something where the daemon runs."""
        return asyncio.run_coroutine_threadsafe(work, self.server.loop).result(60)

    def exported(self, session_id: str) -> str:
        """Return the file of a session as an import takes it."""
        return base64.b64encode(self.server.client().get(f"/sessions/{session_id}/export").content).decode()

    def awaited(self, look: Callable[[], Any]) -> Any:
        """Wait until something is there, and return it."""
        deadline = time.monotonic() + 60
        while not (found := look()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found
