"""JSON-RPC between two ends of one connection: calls, notifications, errors, cancellation, garbage, and the end."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from amplifierd.exceptions import RemoteError, SessionStateError
from amplifierd.workers.json_rpc import INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR, Notification, Peer, PeerGoneError


class Server:
    """What the far end does."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.peer: Peer | None = None
        self.heard: list[Any] = []

    async def echo(self, value: Any) -> Any:
        return value

    async def wait(self) -> str:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "gone on"

    async def refuse(self) -> None:
        raise SessionStateError("it has ended", hint="resume it")

    async def fail(self) -> None:
        raise ZeroDivisionError("a mistake of ours")

    async def ask_back(self, value: int) -> int:
        assert self.peer is not None
        answer: int = await self.peer.call("double", value=value)
        return answer + 1

    def hear(self, what: Any) -> None:
        self.heard.append(what)

    def hear_lines(self, what: Any, lines: list[bytes]) -> None:
        self.heard.append((what, lines))


@pytest_asyncio.fixture
async def server() -> Server:
    return Server()


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[Peer]:
    async def double(value: int) -> int:
        return 2 * value

    near, far = socket.socketpair()
    methods = {name: getattr(server, name) for name in ("echo", "wait", "refuse", "fail", "ask_back")}
    server.peer = await Peer.connect(far, methods, {"hear": server.hear, "hear_lines": server.hear_lines})
    client = await Peer.connect(near, {"double": double})
    yield client
    client.close()
    server.peer.close()
    await asyncio.sleep(0)  # both connections are closed by the loop


async def test_calls_overlap_and_each_gets_its_own_answer(client: Peer, server: Server) -> None:
    slow = asyncio.create_task(client.call("wait"))
    await server.begun.wait()
    answers = await asyncio.gather(*(client.call("echo", value=number) for number in range(100)))
    server.go.set()

    assert (answers, await slow) == (list(range(100)), "gone on")


@pytest.mark.parametrize("value", [None, "zwei\nZeilen\u2028 und ☃", {"a": [1, 2.5, True]}, "x" * 1_000_000])
async def test_values_arrive_as_they_were(client: Peer, value: Any) -> None:
    assert await client.call("echo", value=value) == value


async def test_either_side_may_ask_while_it_is_asked(client: Peer) -> None:
    assert await client.call("ask_back", value=20) == 41


async def test_notifications_are_heard_in_order_before_a_later_call(client: Peer, server: Server) -> None:
    for number in range(10):
        client.notify("hear", what=number)
    await client.call("echo", value=None)

    assert server.heard == list(range(10))


async def test_lines_of_a_notification_arrive_as_they_were(client: Peer, server: Server) -> None:
    first, second = [b'{"a":1}', b"no JSON, \xff", b"x" * 1_000_000], [b""]
    client.notify_all([Notification("hear_lines", {"what": 1}, first), Notification("hear", {"what": 2})])
    client.notify_all([Notification("hear_lines", {"what": 3}, second)])
    await client.call("echo", value=None)

    assert server.heard == [(1, first), 2, (3, second)]


async def test_an_error_of_the_library_is_raised_as_what_it_is(client: Peer) -> None:
    with pytest.raises(SessionStateError) as caught:
        await client.call("refuse")

    assert (caught.value.message, caught.value.hint) == ("it has ended", "resume it")


async def test_an_unknown_error_carries_its_problem(client: Peer) -> None:
    with pytest.raises(RemoteError, match="a mistake of ours") as caught:
        await client.call("fail")

    assert (caught.value.problem["status"], caught.value.problem["error_class"]) == (500, "ZeroDivisionError")


async def test_a_cancelled_call_cancels_the_work(client: Peer, server: Server) -> None:
    waiting = asyncio.create_task(client.call("wait"))
    await server.begun.wait()

    waiting.cancel()

    await asyncio.wait_for(server.cancelled.wait(), 10)
    assert await client.call("echo", value=1) == 1


async def test_when_one_end_is_gone_every_call_of_the_other_ends(client: Peer, server: Server) -> None:
    waiting = asyncio.create_task(client.call("wait"))
    await server.begun.wait()
    assert server.peer is not None

    server.peer.close()

    with pytest.raises(PeerGoneError):
        await waiting
    with pytest.raises(PeerGoneError):
        await client.call("echo", value=1)
    await asyncio.wait_for(server.cancelled.wait(), 10)
    client.notify("hear", what="nobody")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', METHOD_NOT_FOUND),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"other": 1}}', INVALID_PARAMS),
        (b"[]", -32600),
    ],
)
async def test_what_makes_no_sense_is_answered_and_the_connection_goes_on(
    server: Server, line: bytes, code: int
) -> None:
    near, far = socket.socketpair()
    peer = await Peer.connect(far, {"echo": server.echo})
    reader, writer = await asyncio.open_unix_connection(sock=near)

    writer.write(line + b'\n{"jsonrpc": "2.0", "id": 2, "method": "echo", "params": {"value": 5}}\n')
    refused, answered = [json.loads(await reader.readline()) for _ in range(2)]

    assert (refused["error"]["code"], answered) == (code, {"jsonrpc": "2.0", "id": 2, "result": 5})
    peer.close()
    writer.close()
    await writer.wait_closed()
