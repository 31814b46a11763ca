"""The daemon behind the page: a real process, with a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from daemon_home import served_home
from real_server import PATIENCE_S, plan


@dataclass(frozen=True)
class PageDaemon:
    """Where it is, its first token, and a client that may do everything. `directory` is for what tests work on."""

    url: str
    token: str
    api: httpx2.Client
    directory: Path

    def login_link(self, token: str | None = None) -> str:
        """Return a link that logs a browser in, once."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        made = self.api.post("/auth/ticket", json={"purpose": "login"}, headers=headers)
        return f"{self.url}{made.raise_for_status().json()['path']}"

    def session(self, *script: Any, name: str | None = None, **options: Any) -> str:
        """Create a session whose model says these things, call by call, and return its id; `options` as of `plan`."""
        body = {"mount_plan": plan(*script, **options), "working_dir": str(self.directory)}
        made = self.api.post("/sessions", json={**body, **({"name": name} if name else {})})
        session_id: str = made.raise_for_status().json()["session_id"]
        return session_id

    def run(self, session_id: str, prompt: str) -> dict[str, Any]:
        """Run a turn to its end, and return what came of it."""
        ran = self.api.post(f"/sessions/{session_id}/execute", json={"prompt": prompt})
        result: dict[str, Any] = ran.raise_for_status().json()
        return result

    def begin(self, session_id: str, prompt: str) -> None:
        """Begin a turn, and do not wait for it."""
        self.api.post(f"/sessions/{session_id}/execute/stream", json={"prompt": prompt}).raise_for_status()

    def token_of(self, scope: str, name: str, *, owner: str | None = None) -> str:
        """Make a named token, which sees the sessions of its owner, and return its secret."""
        made = self.api.post("/tokens", json={"name": name, "scope": scope, "owner": owner})
        secret: str = made.raise_for_status().json()["token"]
        return secret


@contextmanager
def page_daemon(directory: Path, port: int = 0) -> Iterator[PageDaemon]:
    """Serve a home until the block ends, at any free port unless one is given."""
    work = directory / "work"
    work.mkdir(exist_ok=True)
    with served_home(directory / "home", "--port", str(port), "--working-dir", str(work)) as running:
        token = (directory / "home/config/token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=f"{running.url}/api/v1", headers=headers, timeout=PATIENCE_S) as api:
            yield PageDaemon(running.url, token, api, work)
