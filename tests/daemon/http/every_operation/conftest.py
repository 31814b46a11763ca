"""A daemon of its own, with a session of the admin's and one of Ann's, and a place next to its home that is not its."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

sys.path.append(str(Path(__file__).parent))

from api_operations import OFFLINE, PATHS, QUERIES, Operation, bodies, operations_of
from real_server import RealServer, plan, real_server

from amplifierd.app import create_app

CANARIES = {
    "a stored key": "canary-of-a-stored-key-77c0ffee",
    "the settings": "canary-of-the-settings-6a5b4c3d",
    "a profile": "canary-of-a-profile-3d2c1b0a",
    "an override": "canary-of-an-override-40f1e2d3",
}
"""Secrets that no answer to any request may have."""

CANARY_PROFILE = f"""---
profile: {{name: canary, version: 1.0.0, schema_version: 2, extends: {OFFLINE}}}
tools: [{{module: tool-todo, config: {{client_secret: {CANARIES["a profile"]}}}}}]
---
"""


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

    def session(self, *script: Any, start: bool = True, working_dir: str | None = None, **mock: Any) -> str:
        """Create a session whose model says these things."""
        body = {"mount_plan": plan(*script, **mock), "start": start, "working_dir": working_dir}
        created = self.send("POST", "/api/v1/sessions", body=body)
        assert created.status == 201, created.text
        return str(created.json()["session_id"])

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


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory beside the home, with what a daemon would read if it could be led there."""
    folder = tmp_path_factory.mktemp("place") / "outside"
    folder.mkdir()
    for name in ("marker", "marker.md", "profile.md", "metadata.json", "profile.lock", "transcript.jsonl"):
        (folder / name).write_text("---\nprofile: {name: marker}\n---\ncanary of the marker\n")
    return folder


@pytest.fixture(scope="session")
def world(outside: Path) -> Iterator[World]:
    home = outside.parent / "home"
    work = outside.parent / "work"
    work.mkdir()
    (home / "config/profiles").mkdir(parents=True)
    (home / "config/profiles/canary.md").write_text(CANARY_PROFILE)
    (home / "config/secrets.yaml").write_text(f"api_keys: {{provider-anthropic: {CANARIES['a stored key']}}}\n")
    (home / "config/secrets.yaml").chmod(0o600)
    (home / "config/daemon.yaml").write_text(f"registry_password: {CANARIES['the settings']}\n")
    with real_server(home, working_dir=str(work), metrics={"enabled": True}) as server:
        admin = server.client()
        created = admin.post("/sessions", json={"mount_plan": plan("One.", "Two.")})
        assert created.status_code == 201, created.text
        tokens = {"admin": server.token}
        for caller, scope in (("reader", "read"), ("runner", "run"), ("stranger", "run")):
            owner = "default" if caller != "stranger" else "somebody-else"  # that of the first token, or not
            made = admin.post("/tokens", json={"name": caller, "scope": scope, "owner": owner})
            assert made.status_code == 201, made.text
            tokens[caller] = made.json()["token"]
        operations = operations_of(create_app(home=server.home))
        yield World(server, operations, created.json()["session_id"], tokens)
