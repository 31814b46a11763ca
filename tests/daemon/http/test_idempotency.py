"""A request that is sent twice with one key runs once, whatever happens in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.responses import JSONResponse, StreamingResponse

from amplifier_core.llm_errors import RateLimitError
from amplifierd import open_home
from amplifierd.app import create_app
from amplifierd.exceptions import IdempotencyConflictError, QueueFullError, RequestInterruptedError
from amplifierd.server import idempotency
from amplifierd.server.http.dependencies import Runner
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.idempotency import IdempotencyKeys, StoredAnswer

KEY = {"Idempotency-Key": "one"}


class Work:
    """An endpoint that counts how often it ran, and can be held up."""

    def __init__(self) -> None:
        self.runs = 0
        self.has_begun, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    def router(self) -> APIRouter:
        router = APIRouter(route_class=IdempotentRoute)

        @router.post("/api/v1/work", status_code=201)
        async def work(body: dict[str, Any]) -> dict[str, Any]:
            self.runs += 1
            self.has_begun.set()
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            return {"run": self.runs, **body}

        @router.post("/api/v1/guarded")
        async def guarded(caller: Runner) -> dict[str, Any]:
            return {"secret": "of those who may run"}

        @router.post("/api/v1/streamed")
        async def streamed() -> Any:
            self.runs += 1
            answer = StreamingResponse(iter(["data: one\n\n"]), media_type="text/event-stream")
            answer.repeat = JSONResponse({"correlation_id": "c"}, 202)  # type: ignore[attr-defined]
            return answer

        return router


Serving = Callable[[Path], Any]


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def serving(work: Work) -> Serving:
    @asynccontextmanager
    async def serving(home_dir: Path) -> AsyncIterator[httpx2.AsyncClient]:
        home = open_home(home_dir)
        app = create_app(home=home)
        app.include_router(work.router())
        async with app.router.lifespan_context(app):
            token = home.paths.token_file.read_text().strip()
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                client.headers["Authorization"] = f"Bearer {token}"
                yield client

    return serving


async def test_the_second_request_gets_the_answer_of_the_first(serving: Serving, work: Work, tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        first = await client.post("/api/v1/work", json={"a": 1}, headers=KEY)
        second = await client.post("/api/v1/work", json={"a": 1}, headers=KEY)

    assert (first.status_code, first.json()) == (second.status_code, second.json()) == (201, {"run": 1, "a": 1})
    assert "idempotency-repeated" not in first.headers
    assert second.headers["idempotency-repeated"] == "true"
    assert work.runs == 1


async def test_without_a_key_or_with_another_it_runs_again(serving: Serving, work: Work, tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for headers in ({}, {}, KEY, {"Idempotency-Key": "two"}):
            await client.post("/api/v1/work", json={}, headers=headers)

    assert work.runs == 4


async def test_another_body_is_a_conflict(serving: Serving, work: Work, tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await client.post("/api/v1/work", json={"a": 1}, headers=KEY)
        other_body = await client.post("/api/v1/work", json={"a": 2}, headers=KEY)
        other_query = await client.post("/api/v1/work?x=1", json={"a": 1}, headers=KEY)
        other_path = await client.post("/api/v1/streamed", headers=KEY)

    codes = {answer.json()["code"] for answer in (other_body, other_query, other_path)}
    assert codes == {"idempotency-conflict"}
    assert work.runs == 1


async def test_a_request_joins_the_first_while_it_runs(serving: Serving, work: Work, tmp_path: Path) -> None:
    work.gate.clear()
    async with serving(tmp_path) as client:
        both = [asyncio.create_task(client.post("/api/v1/work", json={}, headers=KEY)) for _ in range(2)]
        await work.has_begun.wait()
        work.gate.set()
        answers = await asyncio.gather(*both)

    assert [answer.json() for answer in answers] == [{"run": 1}] * 2


async def test_work_goes_on_when_its_client_goes_away(serving: Serving, work: Work, tmp_path: Path) -> None:
    work.gate.clear()
    async with serving(tmp_path) as client:
        lost = asyncio.create_task(client.post("/api/v1/work", json={}, headers=KEY))
        await work.has_begun.wait()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        work.gate.set()
        again = await client.post("/api/v1/work", json={}, headers=KEY)

    assert (again.json(), work.runs) == ({"run": 1}, 1)


async def test_it_holds_across_restarts(serving: Serving, work: Work, tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        await client.post("/api/v1/work", json={"é": "ü"}, headers=KEY)
    async with serving(tmp_path) as client:
        again = await client.post("/api/v1/work", json={"é": "ü"}, headers=KEY)

    assert (again.status_code, again.json(), work.runs) == (201, {"run": 1, "é": "ü"}, 1)


async def test_callers_do_not_see_each_others_answers(serving: Serving, work: Work, tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        made = await client.post("/api/v1/tokens", json={"name": "other", "scope": "run"})
        await client.post("/api/v1/work", json={}, headers=KEY)
        other = {**KEY, "Authorization": f"Bearer {made.json()['token']}"}
        answer = await client.post("/api/v1/work", json={}, headers=other)

    assert answer.json() == {"run": 2}


async def test_what_was_kept_is_for_those_who_may_ask_for_it(serving: Serving, tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        made = await client.post("/api/v1/tokens", json={"name": "reader", "scope": "read", "owner": "default"})
        reader = {**KEY, "Authorization": f"Bearer {made.json()['token']}"}
        first = await client.post("/api/v1/guarded", headers=KEY)
        answer = await client.post("/api/v1/guarded", headers=reader)

    assert (first.status_code, answer.status_code, answer.json()["code"]) == (200, 403, "forbidden")


async def test_a_refusal_is_forgotten_and_a_failure_of_work_is_kept(
    serving: Serving, work: Work, tmp_path: Path
) -> None:
    async with serving(tmp_path) as client:
        work.error = QueueFullError("full")
        refused = await client.post("/api/v1/work", json={}, headers=KEY)
        work.error = RateLimitError("slow down", provider="p")
        failed = await client.post("/api/v1/work", json={}, headers=KEY)
        work.error = None
        again = await client.post("/api/v1/work", json={}, headers=KEY)

    assert [answer.json()["code"] for answer in (refused, failed, again)] == ["queue-full", "rate-limit", "rate-limit"]
    assert work.runs == 2


async def test_a_stream_is_repeated_as_what_stands_for_it(serving: Serving, work: Work, tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        first = await client.post("/api/v1/streamed", headers=KEY)
        second = await client.post("/api/v1/streamed", headers=KEY)

    assert first.text == "data: one\n\n"
    assert (second.status_code, second.json(), work.runs) == (202, {"correlation_id": "c"}, 1)


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "ü"])
async def test_a_key_cannot_be_anything(serving: Serving, work: Work, tmp_path: Path, key: str) -> None:
    async with serving(tmp_path) as client:
        answer = await client.post("/api/v1/work", json={}, headers={"Idempotency-Key": key.encode()})

    assert (answer.status_code, work.runs) == (400, 0)


async def test_what_a_killed_daemon_began_is_not_done_again(tmp_path: Path) -> None:
    killed, later = IdempotencyKeys(tmp_path), IdempotencyKeys(tmp_path)

    has_begun = asyncio.Event()

    async def hang() -> StoredAnswer:
        has_begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    begun = asyncio.create_task(killed.once("owner", "key", "print", hang))
    await has_begun.wait()
    later.load()

    with pytest.raises(RequestInterruptedError):
        await later.once("owner", "key", "print", hang)
    begun.cancel()


def tear_last_line(directory: Path) -> None:
    with next(directory.glob("*.jsonl")).open("a") as file:
        file.write('{"name": "torn')


async def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    async def answer() -> StoredAnswer:
        return StoredAnswer(200, {}, "fine")

    keys = IdempotencyKeys(tmp_path)
    await keys.once("owner", "kept", "print", answer)
    await keys.close()
    tear_last_line(tmp_path)
    again = IdempotencyKeys(tmp_path)
    again.load()

    assert await again.once("owner", "kept", "print", answer) == (StoredAnswer(200, {}, "fine"), True)
    assert await again.once("owner", "new", "print", answer) == (StoredAnswer(200, {}, "fine"), False)
    third = IdempotencyKeys(tmp_path)
    third.load()
    assert await third.once("owner", "new", "print", answer) == (StoredAnswer(200, {}, "fine"), True)


async def test_an_answer_that_took_too_much_room_is_gone_and_its_request_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    async def answer() -> StoredAnswer:
        runs.append("ran")
        return StoredAnswer(200, {}, "long")

    keys = IdempotencyKeys(tmp_path)
    await keys.once("owner", "key", "print", answer)
    await keys.close()
    monkeypatch.setattr(idempotency, "MAX_TOTAL_BYTES", 0)
    later = IdempotencyKeys(tmp_path)
    later.load()

    with pytest.raises(RequestInterruptedError):
        await later.once("owner", "key", "print", answer)
    with pytest.raises(IdempotencyConflictError):
        await later.once("owner", "key", "another print", answer)
    assert runs == ["ran"]


def files_in(directory: Path) -> set[Path]:
    return {*directory.iterdir()}


async def test_after_a_day_a_key_is_forgotten_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer() -> StoredAnswer:
        return StoredAnswer(200, {}, "fine")

    keys, real = IdempotencyKeys(tmp_path), time.time
    await keys.once("owner", "old", "print", answer)
    before = files_in(tmp_path)
    monkeypatch.setattr(time, "time", lambda: real() + 27 * 3600)

    assert (await keys.once("owner", "old", "print", answer))[1] is False
    assert before & files_in(tmp_path) == set()
    await keys.close()
