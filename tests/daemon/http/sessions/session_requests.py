"""Requests about sessions as tests send them, and how their answers are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
from real_server import SentEvent, plan, read_events

WRITE = {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "new.md", "content": "hello"}}]}
SLOW = {"text": "Late.", "latency_ms": 60_000}


def create(client: httpx2.Client, work: Path, *script: Any, mount_plan: Any = None, **more: Any) -> str:
    body = {"mount_plan": mount_plan or plan(*script), "working_dir": str(work), **more}
    answer = client.post("/sessions", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"].endswith(answer.json()["session_id"])
    return str(answer.json()["session_id"])


def execute(client: httpx2.Client, session_id: str, prompt: str = "Go on.", **more: Any) -> httpx2.Response:
    return client.post(f"/sessions/{session_id}/execute", json={"prompt": prompt, **more})


def submit(client: httpx2.Client, session_id: str, prompt: str = "Go on.", **more: Any) -> dict[str, Any]:
    answer = client.post(f"/sessions/{session_id}/execute/stream", json={"prompt": prompt, **more})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def watch_until(client: httpx2.Client, url: str, name: str) -> list[SentEvent]:
    """Return the events of a stream up to the first one with a name."""
    seen = []
    with client.stream("GET", url.removeprefix("/api/v1")) as response:
        for event in read_events(response):
            seen.append(event)
            if event.event == name:
                break
    return seen


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]
