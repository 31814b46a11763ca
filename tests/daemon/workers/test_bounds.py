"""What grows with use has an end: the number of workers, the sessions that are loaded, what waits to be told."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from worker_bench import PROMPT, WorkerBench, faulty, until

from amplifierd.exceptions import NotReadyError
from amplifierd.workers.json_rpc import Peer
from amplifierd.workers.live_sessions import TurnRequest
from amplifierd.workers.outbox import MOST_BACKLOG, Outbox

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def few(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerBench]:
    """A home with one worker at a time, and three loaded sessions."""
    limits = {"workers": {"max_processes": 1}, "sessions": {"max_loaded": 3}}
    async with WorkerBench(tmp_path_factory.mktemp("few"), patience_s=5, **limits) as bench:
        yield bench


async def test_a_worker_makes_room_for_sessions_of_another_kind(few: WorkerBench) -> None:
    first, folder = await few.session(faulty("wait"))
    other, _ = await few.session(tools=[{"module": "tool-filesystem"}])
    submitted = await few.live.submit(first, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    with pytest.raises(NotReadyError, match="at work"):
        await few.run(other)
    (folder / "go").touch()
    await few.result(submitted)

    assert (await few.run(other))["status"] == "completed"
    assert few.live.state(first) is None
    assert (await few.run(first))["turn"] == 2
    assert len(few.live.workers()) == 1


async def test_sessions_that_rest_longest_are_unloaded_when_too_many_are_loaded(few: WorkerBench) -> None:
    sessions = [(await few.session())[0] for _ in range(5)]

    for session_id in sessions:
        assert (await few.run(session_id))["status"] == "completed"
        await until(lambda: len(few.live.states()) <= 3)

    assert [state.session_id for state in few.live.states()] == sessions[2:]
    assert (await few.run(sessions[0]))["turn"] == 2


async def test_pieces_of_answers_do_not_pile_up_when_the_daemon_takes_nothing() -> None:
    ours, theirs = socket.socketpair()
    peer = await Peer.connect(ours)
    outbox, text = Outbox(peer), "x" * 10_000

    def event(name: str, number: int) -> dict[str, Any]:
        placed = {"session_id": "s", "root_session_id": "s", "sequence": number, "cursor": f"1-{number}.0"}
        return {"event": name, **placed, "data": {"text": text}}

    for number in range(0, 5_000, 2):
        outbox.put_event(event("content_block:delta", number))
        outbox.put_event(event("tool:pre" if number % 100 == 0 else "content_block:delta", number + 1))
        outbox.flush()
    assert peer.backlog < 2 * MOST_BACKLOG

    reader, writer = await asyncio.open_connection(sock=theirs, limit=1 << 30)
    peer.close()
    received = await reader.read()
    writer.close()
    await writer.wait_closed()
    told = [json.loads(line) for line in received.splitlines()]
    assert [one["sequence"] for one in told if one.get("event") == "tool:pre"] == list(range(1, 5_000, 100))
