"""A client of a real daemon whose connections break: nothing is done twice, no event is missed or seen twice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from real_server import RealServer, plan, real_server

from amplifierd.client.daemon_client import DaemonClient, DaemonLostError
from amplifierd.client.remote_session import RemoteSession
from amplifierd.exceptions import NothingToSteerError, PromptRemovedError, RemoteError, SessionNotFoundError
from amplifierd.sessions.questions.approval import DenyAll
from amplifierd.store.cursor import Cursor

WORDS = " ".join(f"word{number}" for number in range(60))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("served")) as server:
        yield server


@asynccontextmanager
async def breaking(served: RealServer, *budgets: int) -> AsyncIterator[str]:
    """Lead to a server, and break the first connections after so many bytes of what it answers."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    left, leading = [*budgets], set[asyncio.Task[Any]]()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        leading.add(task)
        budget = left.pop(0) if left else None
        there, back = await asyncio.open_connection(host, int(port))
        asking = asyncio.create_task(_passed_on(reader, back))
        answering = asyncio.create_task(_passed_on(there, writer, budget))
        try:
            await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (asking, answering):
                one.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)
            for end in (back, writer):
                end.transport.abort()
            await asyncio.gather(back.wait_closed(), writer.wait_closed(), return_exceptions=True)
            leading.discard(task)

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        if leading:
            await asyncio.wait(leading)


@asynccontextmanager
async def ending(served: RealServer, last: bytes) -> AsyncIterator[DaemonClient]:
    """Lead to a server until it has told of something that is named `last`; it is gone then."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    leading, is_over = set[asyncio.Task[Any]](), asyncio.Event()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        told = b""

        async def answer() -> None:
            nonlocal told
            while data := await there.read(65_536):
                writer.write(data)
                told += data
                if b"\n\n" in told.partition(last)[2]:
                    server.close()
                    is_over.set()
                    return

        ways = [asyncio.create_task(way) for way in (_passed_on(reader, back), answer(), is_over.wait())]
        leading.update(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (back, writer):
            end.close()

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, DaemonClient(url, served.token, is_alive=lambda: not is_over.is_set()) as client:
        yield client
    await asyncio.gather(*leading, return_exceptions=True)


async def _passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None = None) -> None:
    """Pass bytes on, as many as there are, or as may be."""
    while budget is None or budget > 0:
        data = await reader.read(65_536 if budget is None else budget)
        if not data:
            return
        writer.write(data)
        await writer.drain()
        budget = None if budget is None else budget - len(data)


async def begun(client: DaemonClient, *script: Any) -> RemoteSession:
    return await RemoteSession.create(client, {"mount_plan": plan(*script)}, DenyAll())


async def test_each_event_comes_once_though_the_stream_breaks_again_and_again(served: RealServer) -> None:
    async with DaemonClient(served.url, served.token) as steady:
        session = await begun(steady, WORDS)
        budgets = [600, 900, 1_500, 2_500, 3_500, 5_000]
        async with breaking(served, *budgets) as url, DaemonClient(url, served.token) as client:
            watching = RemoteSession(client, {**session.record.model_dump(mode="json")}, DenyAll())
            events = [event async for event in watching.stream("Talk")]
        stored = (await steady.get(f"/sessions/{session.session_id}/events", limit=1000))["events"]

    places = [Cursor.of_event(event) for event in events]
    assert places == sorted({place for place in places if place is not None})
    numbers = [event["sequence"] for event in events if event["sequence"] is not None]
    seen = set(numbers)
    assert {line["seq"] for line in stored if line["seq"] >= numbers[0] and line["seq"] <= numbers[-1]} <= seen
    assert events[-1]["data"]["response"] == WORDS


@pytest.mark.parametrize("budget", [1, 40])
async def test_what_was_asked_for_is_done_once_though_its_answer_was_lost(served: RealServer, budget: int) -> None:
    async with DaemonClient(served.url, served.token) as steady:
        session = await begun(steady, "One.", "Two.")
        async with breaking(served, budget, budget) as url, DaemonClient(url, served.token) as client:
            watching = RemoteSession(client, {**session.record.model_dump(mode="json")}, DenyAll())
            events = [event async for event in watching.stream("Count")]

    assert events[-1]["data"]["response"] == "One."
    assert watching.record.turn_count == 1


async def test_a_prompt_is_taken_out_of_the_queue_once_though_the_answer_was_lost(served: RealServer) -> None:
    async with DaemonClient(served.url, served.token) as steady:
        session = await begun(steady, {"text": "Late.", "latency_ms": 60_000})
        for prompt in ("one", "two", "three"):
            await session.submit(prompt, queue=True)
        async with breaking(served, 1) as url, DaemonClient(url, served.token) as client:
            watching = RemoteSession(client, {**session.record.model_dump(mode="json")}, DenyAll())
            with pytest.raises(DaemonLostError, match="was lost"):
                await watching.remove_queued(1)
        left = await session.queued()
        await session.cancel(immediate=True)

    assert left == ["three"]


async def test_a_prompt_that_is_taken_out_of_the_queue_is_reported_as_not_sent(served: RealServer) -> None:
    async with DaemonClient(served.url, served.token) as client:
        session = await begun(client, {"text": "Late.", "latency_ms": 60_000})
        await session.submit("one")
        async with aclosing(session.watch()) as events:
            await anext(events)
            waiting = asyncio.create_task(session.execute("two", queue=True))
            while (await anext(events))["event"] != "execution:queued":
                pass
        await session.remove_queued(1)
        with pytest.raises(PromptRemovedError, match="this was not sent: two"):
            await waiting
        await session.cancel(immediate=True)


async def test_the_end_of_a_turn_is_known_though_its_daemon_ended_when_it_had_told_it(served: RealServer) -> None:
    async with ending(served, b"execution:done") as client:
        session = await begun(client, "Done.")
        events = [event async for event in session.stream("Work")]
    async with ending(served, b"execution:done") as client:
        result = await (await begun(client, "Done.")).execute("Work")

    assert (events[-1]["event"], events[-1]["data"]["response"]) == ("execution:done", "Done.")
    assert session.record.turn_count == 0  # as it was known
    assert (result.status, result.response) == ("completed", "Done.")


async def test_problems_are_raised_as_what_they_were(served: RealServer) -> None:
    async with DaemonClient(served.url, served.token) as client:
        session = await begun(client, "Hi.")
        with pytest.raises(NothingToSteerError):
            await session.steer("faster")
        with pytest.raises(SessionNotFoundError) as missing:
            await client.get("/sessions/nowhere")
        with pytest.raises(RemoteError) as refused:
            await client.post("/sessions", {"colour": "red"})

    assert "nowhere" in missing.value.message
    assert refused.value.problem["code"] == "extra-field"


async def test_a_daemon_whose_process_has_ended_is_not_waited_for() -> None:
    async with DaemonClient("http://127.0.0.1:9", None, is_alive=lambda: False) as client:
        with pytest.raises(DaemonLostError, match="has ended"):
            await client.get("/sessions")
        with pytest.raises(DaemonLostError):
            async with aclosing(client.events("/sessions/x/stream")) as events:
                await anext(events)
