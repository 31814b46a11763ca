"""Clients that send garbage, half a request, or nothing at all: they get nothing, and the others are served."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx2
import pytest
from conversation import Conversation
from hurt_daemon import HurtDaemon

HALF_A_HEAD = b"POST /api/v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le"
HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"


@pytest.fixture
def conversation(daemon: HurtDaemon, request: pytest.FixtureRequest) -> Iterator[Conversation]:
    """A session that has to go on as if nothing had happened."""
    conversation = Conversation.begin(daemon, request.node.name[:40])
    yield conversation
    conversation.check()
    assert conversation.prompts() == ["the first words", "Go on."]


def connected(daemon: HurtDaemon) -> socket.socket:
    host, port = daemon.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_garbage_is_answered_with_a_refusal_or_the_end(daemon: HurtDaemon, conversation: Conversation) -> None:
    chance = random.Random(15)
    samples = [
        *(chance.randbytes(chance.randrange(1, 4000)) for _ in range(40)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS where there is none
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzzz\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 100_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    for sample in samples:
        with connected(daemon) as client:
            client.sendall(sample)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(64)
        assert answer == b"" or answer.split()[1][:1] == b"4", (sample[:80], answer)


def test_half_a_prompt_runs_nothing(daemon: HurtDaemon, conversation: Conversation) -> None:
    token = (daemon.home / "config/token").read_text().strip()
    head = HEAD.format(path=f"/api/v1/sessions/{conversation.session_id}/execute", token=token)
    body = b'{"prompt": "never said"}'
    for sent in (b"", b"{", body[:-1]):
        with connected(daemon) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + sent)


def test_connections_that_are_held_open_keep_nobody_out(daemon: HurtDaemon, conversation: Conversation) -> None:
    with ExitStack() as held:
        for number in range(300):
            client = held.enter_context(connected(daemon))
            client.sendall(b"" if number % 3 else HALF_A_HEAD)
        for _ in range(5):
            assert httpx2.get(f"{daemon.url}/health").status_code == 200
        assert conversation.run("Go on.").status_code == 200
        assert daemon.client().delete(f"/sessions/{conversation.session_id}/messages/last").status_code == 200
        assert (
            daemon.client().post(f"/sessions/{conversation.session_id}/truncate", json={"turn": 1}).status_code == 200
        )
