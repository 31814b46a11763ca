"""Long work: joined, watched, cancelled, and shown only to those whom it concerns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.sources import ProgressEvent
from amplifierd.exceptions import OperationCancelledError, OperationFinishedError, OperationNotFoundError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.operations import Operations

from .conftest import Served

ADMIN = Caller("admin", "admin", "admin")
ADA, BOB = Caller("ada", "ada", "run"), Caller("bob", "bob", "run")


async def test_equal_work_is_done_once_and_all_get_its_result(tmp_path: Path) -> None:
    operations, gate, runs = Operations(tmp_path / "operations.jsonl"), asyncio.Event(), list[str]()

    async def work() -> str:
        runs.append("ran")
        await gate.wait()
        return "done"

    one = operations.start("sync", "team", work, caller=ADA)
    two = operations.start("sync", "team", work, caller=BOB)
    other = operations.start("sync", "other", work, caller=ADA)
    gate.set()

    assert await operations.wait(one, 10)
    assert await operations.wait(other, 10)
    assert (one is two, one.outcome(), len(runs)) == (True, "done", 2)
    again = operations.start("sync", "team", work, caller=ADA)
    assert again is not one
    await operations.stop()


async def test_progress_and_every_change_are_told(tmp_path: Path) -> None:
    operations, told = Operations(tmp_path / "operations.jsonl"), list[dict[str, Any]]()
    operations.listeners.append(told.append)

    async def work() -> None:
        await asyncio.to_thread(operations.report, ProgressEvent("source", "git+x", "fetching"))
        operations.report(ProgressEvent("source", "git+x", "ready"))

    operation = operations.start("compile", "a/b", work, caller=ADA)
    await operations.wait(operation, 10)
    await asyncio.sleep(0)

    assert [each["status"] for each in told] == ["running", "running", "running", "succeeded"]
    assert told[1]["progress"] == {"done": 0, "total": None, "message": "fetching source git+x"}
    assert told[-1]["progress"]["done"] == 1


async def test_who_knows_how_much_there_is_says_so_and_counts_only_that(tmp_path: Path) -> None:
    operations, told = Operations(tmp_path / "operations.jsonl"), list[dict[str, Any]]()
    operations.listeners.append(told.append)

    async def work() -> None:
        operations.report(ProgressEvent("source", "git+w", "ready"))
        operations.expect("collection", 3)
        operations.report(ProgressEvent("source", "git+x", "ready"))
        operations.report(ProgressEvent("collection", "y", "failed"))
        for ref in ("a", "b", "c", "of another"):
            operations.report(ProgressEvent("collection", ref, "ready"))

    await operations.wait(operations.start("sync", "", work, caller=ADA), 10)
    await asyncio.sleep(0)

    counted = [(each["progress"]["done"], each["progress"]["total"]) for each in told]
    assert counted == [(0, None), (1, None), (0, 3), (0, 3), (0, 3), (1, 3), (2, 3), (3, 3), (3, 3), (3, 3)]


async def test_what_is_cancelled_stops_and_says_so(tmp_path: Path) -> None:
    operations = Operations(tmp_path / "operations.jsonl")
    operation = operations.start("compile", "a/b", lambda: asyncio.Event().wait(), caller=ADA)
    await asyncio.sleep(0)

    assert (await operations.cancel(operation.id, ADA)).status == "cancelled"
    with pytest.raises(OperationCancelledError):
        operation.outcome()
    with pytest.raises(OperationFinishedError):
        await operations.cancel(operation.id, ADA)


async def test_a_failure_is_a_problem_without_its_inside(tmp_path: Path) -> None:
    operations = Operations(tmp_path / "operations.jsonl")

    async def work() -> None:
        raise RuntimeError("/srv/secret/path")

    operation = operations.start("compile", "a/b", work, caller=ADA)
    await operations.wait(operation, 10)

    assert operation.error is not None
    assert (operation.error["code"], operation.error["status"]) == ("internal-error", 500)
    assert "/srv" not in str(operation.error)


async def test_others_do_not_see_it_and_an_admin_does(tmp_path: Path) -> None:
    operations = Operations(tmp_path / "operations.jsonl")
    operation = operations.start("compile", "a/b", lambda: asyncio.sleep(0), caller=ADA)

    assert operations.list(BOB) == []
    assert operations.list(ADMIN) == operations.list(ADA) == [operation]
    with pytest.raises(OperationNotFoundError):
        operations.get(operation.id, BOB)
    await operations.wait(operation, 10)


async def test_what_a_killed_daemon_had_begun_has_failed_and_what_it_had_ended_is_kept(tmp_path: Path) -> None:
    killed, later = (Operations(tmp_path / "operations.jsonl") for _ in range(2))
    ended = killed.start("compile", "a/b", lambda: asyncio.sleep(0, "built"), caller=ADA)
    begun = killed.start("sync", "team", lambda: asyncio.Event().wait(), caller=ADA)
    assert await killed.wait(ended, 10)

    later.load()

    assert later.get(ended.id, ADA).to_json() == ended.to_json()
    interrupted = later.get(begun.id, ADA)
    assert (interrupted.status, interrupted.error and interrupted.error["code"]) == ("failed", "interrupted")
    with pytest.raises(OperationFinishedError):
        await later.cancel(begun.id, ADA)
    with pytest.raises(OperationNotFoundError):
        later.get(ended.id, BOB)
    await killed.stop()


async def test_a_line_that_was_torn_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "operations.jsonl"
    first, later = Operations(file), Operations(file)
    kept = first.start("compile", "a/b", lambda: asyncio.sleep(0), caller=ADA)
    assert await first.wait(kept, 10)
    await first.stop()
    file.write_bytes(file.read_bytes() + b'{"id": "op_torn", "ki')

    later.load()

    assert [each.id for each in later.list(ADMIN)] == [kept.id]


def test_over_http(served: Served) -> None:
    client = served.client()

    assert client.get("/api/v1/operations").json() == {
        **{"operations": [], "total": 0, "limit": 100, "offset": 0, "has_more": False}
    }
    for answer in (client.get("/api/v1/operations/op_none"), client.delete("/api/v1/operations/op_none")):
        assert (answer.status_code, answer.json()["code"]) == (404, "operation-not-found")
    reader = served.client(served.token_of("read", "op-reader"))
    assert reader.delete("/api/v1/operations/op_none").status_code == 403
    assert client.get("/api/v1/operations", params={"limit": 0}).status_code == 422
