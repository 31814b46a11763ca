"""Where requests of other members come in: each is sealed, and says for whom it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection as Connection
from starlette.types import Message, Receive, Scope

from amplifierd.cluster.channel import Channels, Request, SealedAnswer
from amplifierd.cluster.member_request import CALLER, CHANNEL, sealed_headers
from amplifierd.exceptions import UnauthorizedError
from amplifierd.server.auth.callers import Caller, read_carried

Headers = Mapping[bytes, bytes]

MEMBER = "member"
"""Where the state of a request says which member sent it on."""


@dataclass(frozen=True)
class MemberRequest:
    """A request that another member sent: for whom, and what its answer is sealed with."""

    caller: Caller | None
    address: str
    answer: SealedAnswer
    body_hash: str

    def checked(self, receive: Receive) -> Receive:
        """Return a `receive` that refuses a body which is not the one that was sealed."""
        seen = hashlib.sha256()

        async def receive_checked() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                seen.update(message.get("body", b""))
                if not message.get("more_body", False) and seen.hexdigest() != self.body_hash:
                    raise HTTPException(400, "the body was changed on its way between members")
            return message

        return receive_checked


def is_of_member(headers: Headers) -> bool:
    """True if a request claims to come from a member."""
    return CHANNEL.encode() in headers or CALLER.encode() in headers


def accept(channels: Channels, scope: Scope, headers: Headers) -> MemberRequest:
    """Take a request of another member on.

    Raises:
        UnauthorizedError: it does not come from one.
    """
    parts = headers.get(CHANNEL.encode(), b"").decode("latin-1").split(" ")
    if len(parts) != 4 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 18:
        raise UnauthorizedError("the request is not sealed by a member")
    channel_id, number, body_hash, seal = parts
    said = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.items())
    request = Request(scope["method"], target_of(scope), tuple(sorted(sealed_headers(said))), body_hash)
    answer = channels.accept(channel_id, int(number), seal, request)
    caller, address = read_carried(headers.get(CALLER.encode(), b"").decode("latin-1"))
    return MemberRequest(caller, address, answer, body_hash)


def is_relayed(request: Connection) -> bool:
    """True if another member passes on what is answered."""
    return MEMBER in request.scope["state"]


def target_of(scope: Scope) -> str:
    """Return the path and the query of a request as they are on the wire."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return (path + b"?" + query if query else path).decode("latin-1")
