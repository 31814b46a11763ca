"""Several daemons on one store: any of them answers any client, and the end of one loses nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from cluster_members import WAITS, Members, until, watching


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory, postgres_database: str) -> Iterator[Members]:
    cluster = Members(tmp_path_factory.mktemp("cluster"), f"{postgres_database}?schema=cluster")
    yield cluster
    cluster.end()


def test_any_member_answers_any_request(members: Members) -> None:
    one, two, three = members
    session_id = members.session(one, "First.", WAITS, "Second.", "Third.")
    assert two.api.post(f"/sessions/{session_id}/execute", json={"prompt": "a"}).json()["response"] == "First."

    with (
        watching(one.api, f"/sessions/{session_id}/stream") as stream,
        watching(three.api, "/events") as everything,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(three.api.post, f"/sessions/{session_id}/execute", json={"prompt": "b"})
        until(lambda: "tool:pre" in stream.names())
        for member in members:
            assert member.api.get(f"/sessions/{session_id}").json()["activity"] == "executing"
            listed = member.api.get("/sessions", params={"activity": "executing"}).json()["sessions"]
            assert [each["session_id"] for each in listed] == [session_id]
        assert one.api.post(f"/sessions/{session_id}/steer", json={"content": "hurry"}).status_code == 202
        (members.folder_of(session_id) / "go").touch()
        assert turn.result().json()["response"] == "Second."
        until(lambda: "execution:done" in stream.names() and "execution:done" in everything.names(session_id))

    numbers = stream.numbers(session_id)
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    assert everything.numbers(session_id) == numbers

    key = {"Idempotency-Key": "once"}
    answers = [each.api.post(f"/sessions/{session_id}/execute", json={"prompt": "c"}, headers=key) for each in members]
    assert [answer.json()["turn"] for answer in answers] == [3, 3, 3]
    assert len(one.api.get(f"/sessions/{session_id}/turns").json()["turns"]) == 3
