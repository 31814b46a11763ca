"""Sessions over HTTP: what each endpoint does, and whom it refuses, with real workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.append(str(Path(__file__).parent))

from real_server import RealServer, plan, read_events, real_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "notes.md").write_text("- buy milk\n")
    return folder


@pytest.fixture
def admin(server: RealServer) -> httpx2.Client:
    return server.client()


def create(client: httpx2.Client, work: Path, *script: Any, **more: Any) -> str:
    body = {"mount_plan": plan(*script), "working_dir": str(work), **more}
    answer = client.post("/sessions", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"].endswith(answer.json()["session_id"])
    return str(answer.json()["session_id"])


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_session_is_created_and_runs_a_turn(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Milk.", name="shopping", tags=["home"])

    answer = admin.post(f"/sessions/{session_id}/execute", json={"prompt": "What do I need?"})

    assert answer.status_code == 200, answer.text
    assert (answer.json()["response"], answer.json()["turn"]) == ("Milk.", 1)
    assert answer.json()["correlation_id"] == f"prompt_{session_id}_1"
    shown = admin.get(f"/sessions/{session_id}").json()
    assert (shown["turn_count"], shown["activity"], shown["name"], shown["tags"]) == (1, "idle", "shopping", ["home"])


def test_the_events_of_a_turn_are_its_answer_when_they_are_asked_for(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Milk.")
    request = {"json": {"prompt": "What?"}, "headers": {"Accept": "text/event-stream"}}

    with admin.stream("POST", f"/sessions/{session_id}/execute", **request) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache, no-transform"
        events = [*read_events(response)]

    names = [event.event for event in events]
    assert (names[0], names[-1], names.count("execution:done")) == ("user_message:saved", "execution:done", 1)
    numbers = [int(event.id or 0) for event in events]
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    assert {event.data["correlation_id"] for event in events} == {f"prompt_{session_id}_1"}
