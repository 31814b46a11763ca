"""Who is on the wire between members, or at the address of one, can neither be one nor repeat what one said."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest
from served_member import Wire, say, serving, wire_to

from amplifierd import open_home
from amplifierd.cluster.cluster_token import find_cluster_token
from amplifierd.cluster.destination import Destination
from amplifierd.cluster.member_request import CALLER, CHANNEL, HELLO, SEAL
from amplifierd.cluster.peers import Peers
from amplifierd.exceptions import MemberError, MemberUntrustedError
from amplifierd.server.auth.callers import Caller, carried

ADMIN = carried(Caller("admin", "admin", "admin"), "127.0.0.1")
READER = carried(Caller("reader", "reader", "read"), "127.0.0.1")
TARGET = "/api/v1/tokens"
NEW_TOKEN = b'{"name":"theirs","scope":"admin"}'
JSON = ("content-type", "application/json")


@dataclass
class Member:
    """A member that is served, its id and the token of its cluster."""

    address: str
    member_id: str
    token: bytes

    def peers(self) -> Peers:
        return Peers(self.token, "member_other")


@pytest.fixture(scope="module")
def member(postgres_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    folder: Path = tmp_path_factory.mktemp("member")
    store = f"{postgres_database}?schema=forged_members"
    home = open_home(folder, overrides={"port": 0, "offline": True, "store": store})
    with serving(home) as address:
        own = home.paths.token_file.read_text().strip()
        answer = httpx2.get(f"{address}/api/v1/cluster", headers={"Authorization": f"Bearer {own}"})
        yield Member(address, answer.json()["member_id"], find_cluster_token(home.paths))


def request(method: str, target: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def make_token(peers: Peers, to: Destination, body: bytes = NEW_TOKEN) -> int:
    """Have a member make a token, as it does for an administrator whom another member let in."""
    async with peers.send(to, "POST", TARGET, caller=ADMIN, headers=[JSON], body=body) as response:
        await response.aread()
        return response.status_code


@pytest.fixture
async def overheard(member: Member) -> tuple[Wire, list[bytes]]:
    """What went over the wire to a member: a hello, and a request that makes a token."""
    peers = member.peers()
    with wire_to(member.address) as wire:
        body = NEW_TOKEN.replace(b"theirs", uuid.uuid4().hex.encode())
        assert await make_token(peers, Destination(member.member_id, wire.address), body) == 201
        await peers.close()
        whole = b"".join(wire.sent)
    start = whole.index(b"POST /api/")
    return wire, [whole[:start], whole[start:]]


async def test_what_was_overheard_cannot_be_said_again(member: Member, overheard: tuple[Wire, list[bytes]]) -> None:
    _, (hello, asked) = overheard

    assert say(member.address, asked) == [401]
    assert say(member.address, hello, asked) == [200, 401]


CHANGES = {
    "another target": (b"POST /api/v1/tokens", b"POST /api/v1/tokenz", 401),
    "another method": (b"POST /api/", b"PUT /api/", 401),
    "another caller": (ADMIN.encode(), READER.encode(), 401),
    "another body": (b'"scope":"admin"', b'"scope":"admix"', 401),
    "no channel": (CHANNEL.encode(), b"x-amplifier-chann_l", 401),
}


@pytest.mark.parametrize(("old", "new", "status"), CHANGES.values(), ids=list(CHANGES))
async def test_what_was_overheard_cannot_be_changed(
    member: Member, overheard: tuple[Wire, list[bytes]], old: bytes, new: bytes, status: int
) -> None:
    _, (hello, asked) = overheard
    assert old in asked

    assert say(member.address, hello, asked.replace(old, new, 1)) == [200, status]


async def test_a_body_that_is_changed_on_its_way_does_nothing(member: Member) -> None:
    peers = member.peers()
    with wire_to(member.address) as wire:
        to = Destination(member.member_id, wire.address)
        wire.requests = lambda data: data.replace(b'"name":"wanted"', b'"name":"mallor"')

        assert await make_token(peers, to, NEW_TOKEN.replace(b"theirs", b"wanted")) == 400

        async with peers.send(to, "GET", TARGET, caller=ADMIN) as response:
            listed = await response.aread()
    await peers.close()
    assert b'"name":"mallor"' in b"".join(wire.sent).replace(b"wanted", b"mallor")
    assert (b"mallor" in listed, b"wanted" in listed) == (False, False)


SEALS = [
    "",
    "x",
    "a 1 b c",
    f"{'0' * 32} 1 {'0' * 64} {'0' * 64}",
    f"{'0' * 32} 1 {'0' * 64} \xe9\xff",
    f"\xe9 1 {'0' * 64} \xe9",
    f"{'0' * 32} {'9' * 4000} {'0' * 64} x",
    f"{'0' * 32} \xb2 {'0' * 64} x",
    f"{'0' * 32} -1 {'0' * 64} x",
    " ".join("abcdefgh"),
]


@pytest.mark.parametrize("seal", SEALS)
async def test_a_seal_that_nobody_made_is_refused(
    member: Member, overheard: tuple[Wire, list[bytes]], seal: str
) -> None:
    _, (_, asked) = overheard
    channel_id = asked.partition(CHANNEL.encode() + b": ")[2].split(b" ")[0].decode()
    for forged in (seal, seal.replace("0" * 32, channel_id)):
        for caller in (ADMIN, "", "e30=", "\xff"):
            headers = {CHANNEL: forged, CALLER: caller}
            assert say(member.address, request("GET", TARGET, **headers)) == [401]
    assert say(member.address, request("GET", TARGET, **{CALLER: ADMIN})) == [401]


HELLOS: list[object] = [
    {},
    [],
    "hello",
    {"sender": "a", "receiver": "MEMBER", "nonce": "0", "proof": "0" * 64},
    {"sender": "a", "receiver": "MEMBER", "nonce": "0", "proof": "\xe9" * 64},
    {"sender": "\udcff", "receiver": "MEMBER", "nonce": "\ud800", "proof": "é"},
    {"sender": 1, "receiver": None, "nonce": [], "proof": {}},
    {"sender": "a" * 100_000, "receiver": "MEMBER", "nonce": "0", "proof": ""},
]


@pytest.mark.parametrize("hello", HELLOS, ids=lambda hello: json.dumps(hello)[:40])
def test_a_hello_without_the_token_opens_nothing(member: Member, hello: object) -> None:
    body = json.dumps(hello).replace("MEMBER", member.member_id).encode()

    (status,) = say(member.address, request("POST", HELLO, body, content_type="application/json"))

    assert status in (400, 401, 422)


async def test_a_member_whose_address_another_one_has_is_gone_and_no_stranger(member: Member) -> None:
    peers = member.peers()

    with pytest.raises(MemberError, match=r"is not at .* any more") as raised:
        await peers.ask(Destination("the one before", member.address), "/api/v1/cluster", caller=ADMIN)

    assert not isinstance(raised.value, MemberUntrustedError)
    assert not raised.value.was_sent
    await peers.close()


async def test_an_answer_to_something_else_is_not_believed(member: Member) -> None:
    peers = member.peers()
    with wire_to(member.address) as wire:
        to = Destination(member.member_id, wire.address)
        await peers.ask(to, "/api/v1/cluster", caller=ADMIN)
        heard = b"".join(wire.answered)
        before = heard[heard.rindex(b"HTTP/1.1") :]
        assert SEAL.encode() in before.lower()
        wire.answers = lambda answer: before  # whatever is asked now

        with pytest.raises(MemberUntrustedError, match="is not sealed by the member"):
            await peers.ask(to, "/api/v1/cluster", caller=ADMIN)
    await peers.close()


@contextmanager
def impostor(status: int, seal: str, **welcome: object) -> Iterator[tuple[str, list[str]]]:
    """Answer at the address of a member without knowing the token; yields the address, and what was asked there."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = json.dumps(welcome).encode()
            self.send_response(status)
            if seal:
                self.send_header(SEAL, seal)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


WELCOMES: list[dict[str, object]] = [
    {},
    {"channel_id": "a", "nonce": "b", "proof": "0" * 64},
    {"channel_id": "a", "nonce": "b", "proof": "\xe9"},
    {"channel_id": "\ud800", "nonce": "\udfff", "proof": "\ud800"},
    {"channel_id": [], "nonce": {}, "proof": None},
]


@pytest.mark.parametrize("welcome", WELCOMES, ids=lambda welcome: json.dumps(welcome)[:40])
@pytest.mark.parametrize("status", [200, 401, 500])
async def test_an_impostor_learns_nothing_but_a_hello(welcome: dict[str, object], status: int) -> None:
    peers = Peers(b"t" * 32, "member_a")
    with (
        impostor(status, "\xe9" if status == 401 else "", **welcome) as (address, asked),
        pytest.raises(MemberError) as raised,
    ):
        await make_token(peers, Destination("member_b", address))
    assert asked == [HELLO]
    assert not raised.value.was_sent
    await peers.close()
