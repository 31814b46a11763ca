"""How members prove to each other that they know the cluster's token, without ever sending it.

Before a member sends another one anything, both show that they have the token: each mixes it with a number that the
other one has chosen. What comes of it is the key of a channel from the one to the other. Every request on it is
numbered and sealed with the key, each number counts once, and every answer carries a seal of its own. No clock is
looked at. Someone who answers at a member's address without the token is noticed before the first request is sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from amplifier_system.surroundings import new_token
from amplifierd.exceptions import MemberUntrustedError, RequestRefusedError, UnauthorizedError

_NUMBERS_KEPT = 4096
"""How far behind the highest number a request may come; those of one channel overtake each other."""

_CHANNELS = 4096


@dataclass(frozen=True)
class Hello:
    """The first word of a member: who speaks, to whom, and a number that the other one has to use."""

    sender: str
    receiver: str
    nonce: str
    proof: str = field(repr=False)


@dataclass(frozen=True)
class Welcome:
    """The answer to it: the name of the channel, the other number, and the proof that the token is known here."""

    channel_id: str
    nonce: str
    proof: str = field(repr=False)


@dataclass(frozen=True)
class Request:
    """What of a request is sealed: everything that decides what is done."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body_hash: str

    @classmethod
    def of(cls, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes) -> Request:
        """Return what is sealed of a request; its headers in any order."""
        return cls(method, target, tuple(sorted(headers)), hashlib.sha256(body).hexdigest())


class Greeting:
    """One attempt to open a channel to another member."""

    def __init__(self, token: bytes, sender: str, receiver: str) -> None:
        self._token, nonce = token, new_token(64)
        self.hello = Hello(sender, receiver, nonce, _seal(token, "hello", sender, receiver, nonce))

    def channel(self, welcome: Welcome) -> Channel:
        """Return the channel that a welcome opens.

        Raises:
            MemberUntrustedError: the server that answered does not know the token.
        """
        hello = self.hello
        expected = _seal(self._token, "welcome", *_names(hello, welcome))
        if not _is_same(expected, welcome.proof):
            raise MemberUntrustedError(
                f"the server at the address of member {hello.receiver} does not know the cluster's token",
                hint="make sure that cluster.address and the cluster token are correct on every machine",
            )
        return Channel(welcome.channel_id, hello.receiver, _key(self._token, hello, welcome))


class Channel:
    """The way to another member, as its sender has it."""

    def __init__(self, channel_id: str, receiver: str, key: bytes) -> None:
        self.channel_id, self.receiver = channel_id, receiver
        self._key, self._last = key, 0

    def seal(self, request: Request) -> tuple[int, str]:
        """Return the number of a request, and its seal."""
        self._last += 1
        return self._last, _request_seal(self._key, self.channel_id, self._last, request)

    def is_answer(self, number: int, status: int, seal: str) -> bool:
        """True if an answer comes from the member at the other end."""
        return _is_same(_answer_seal(self._key, self.channel_id, number, status), seal)


@dataclass
class _Incoming:
    """The same channel as its receiver has it, with the numbers that were used."""

    sender: str
    key: bytes
    highest: int = 0
    used: set[int] = field(default_factory=set)

    def use(self, number: int) -> bool:
        """Use a number up; False if it was, or is too old for that to be known."""
        if number in self.used or number <= self.highest - _NUMBERS_KEPT:
            return False
        self.used.add(number)
        if number > self.highest:
            self.highest = number
            if len(self.used) > 2 * _NUMBERS_KEPT:
                self.used = {one for one in self.used if one > self.highest - _NUMBERS_KEPT}
        return True


@dataclass(frozen=True)
class SealedAnswer:
    """Who sent a request, and what its answer is sealed with."""

    sender: str
    _key: bytes = field(repr=False)
    _channel_id: str
    _number: int

    def seal(self, status: int) -> str:
        return _answer_seal(self._key, self._channel_id, self._number, status)


class Channels:
    """The channels that lead to this member. Those that were used longest ago are forgotten, and opened anew."""

    def __init__(self, token: bytes, member_id: str) -> None:
        self._token, self._member_id = token, member_id
        self._open: OrderedDict[str, _Incoming] = OrderedDict()

    def welcome(self, hello: Hello) -> Welcome:
        """Open a channel for a member.

        Raises:
            UnauthorizedError: it does not know the token.
            RequestRefusedError: it meant another member, which was reached at this address before.
        """
        expected = _seal(self._token, "hello", hello.sender, hello.receiver, hello.nonce)
        if not _is_same(expected, hello.proof):
            raise UnauthorizedError("the caller does not know the cluster's token")
        if hello.receiver != self._member_id:
            raise RequestRefusedError(f"this is {self._member_id}, not {hello.receiver}", code="member-not-found")
        channel_id, nonce = new_token(32), new_token(64)
        unsealed = Welcome(channel_id, nonce, "")
        self._open[channel_id] = _Incoming(hello.sender, _key(self._token, hello, unsealed))
        if len(self._open) > _CHANNELS:
            self._open.popitem(last=False)
        return Welcome(channel_id, nonce, _seal(self._token, "welcome", *_names(hello, unsealed)))

    def accept(self, channel_id: str, number: int, seal: str, request: Request) -> SealedAnswer:
        """Take a request on.

        Raises:
            UnauthorizedError: it is not from a member, was changed on its way, or came before.
        """
        channel = self._open.get(channel_id)
        if channel is None:
            raise UnauthorizedError("there is no such channel between members", hint="open it anew")
        expected = _request_seal(channel.key, channel_id, number, request)
        if not _is_same(expected, seal) or not channel.use(number):
            raise UnauthorizedError("the request is not sealed by a member, or is a repeat")
        self._open.move_to_end(channel_id)
        return SealedAnswer(channel.sender, channel.key, channel_id, number)


def _names(hello: Hello, welcome: Welcome) -> tuple[str, ...]:
    return hello.sender, hello.receiver, hello.nonce, welcome.channel_id, welcome.nonce


def _key(token: bytes, hello: Hello, welcome: Welcome) -> bytes:
    return bytes.fromhex(_seal(token, "channel", *_names(hello, welcome)))


def _request_seal(key: bytes, channel_id: str, number: int, request: Request) -> str:
    headers = [part for pair in request.headers for part in pair]
    said = (request.method, request.target, request.body_hash, str(len(request.headers)), *headers)
    return _seal(key, "request", channel_id, str(number), *said)


def _answer_seal(key: bytes, channel_id: str, number: int, status: int) -> str:
    return _seal(key, "answer", channel_id, str(number), str(status))


def _seal(key: bytes, *parts: str) -> str:
    """Return the seal of some texts; where one ends and the next begins is part of it."""
    said = b"".join(b"%d:%b" % (len(text), text) for part in parts for text in (_encoded(part),))
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def _is_same(expected: str, given: str) -> bool:
    """Compare seals in a time that says nothing about them; a stranger's may be any text."""
    return hmac.compare_digest(_encoded(expected), _encoded(given))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
