"""The provider requests of a session, read back: every message with its text and where it came from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_sessions.event_page import named_events
from amplifier_system.threads import in_thread
from amplifierd.exceptions import StoredRequestNotFoundError
from amplifierd.sessions.conversation.message_digest import (
    TranscriptIndex,
    TranscriptMessage,
    canonical_message,
    message_digest,
)
from amplifierd.sessions.layers.request_parts import REQUEST_STORED, RESPONSE_STORED, RequestPart
from amplifierd.store.protocol import SessionStore, StoredEvent


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A message of a request. `message` is it in canonical form, None when its text cannot be had any more.

    `is_exact` says whether the text is what was sent; otherwise secrets were taken out of it.
    """

    part: RequestPart
    message: Mapping[str, Any] | None
    is_exact: bool

    def to_json(self) -> dict[str, Any]:
        return {**self.part.to_json(), "content": self.message, "is_exact": self.is_exact}


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What came back: a message of the transcript, nothing (`is_empty`), or an error."""

    facts: Mapping[str, Any]
    message: TranscriptMessage | None = None

    @property
    def is_empty(self) -> bool:
        return bool(self.facts.get("empty"))

    @property
    def error(self) -> Mapping[str, Any] | None:
        error = self.facts.get("error")
        return error if isinstance(error, Mapping) else None

    @property
    def usage(self) -> Mapping[str, Any]:
        usage = self.facts.get("usage")
        return usage if isinstance(usage, Mapping) else {}


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """One provider request, with the response if one came; `seq` is the number of its event."""

    request_id: str
    number: int
    seq: int
    turn: int
    provider: str
    model: str | None
    parts: tuple[StoredPart, ...]
    tools_hash: str | None
    tools: tuple[Mapping[str, Any], ...]
    parameters: Mapping[str, Any]
    response: StoredResponse | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message_id(self) -> str | None:
        """The message of the transcript that it was answered with."""
        answer = self.response.message if self.response else None
        return str(answer["id"]) if answer else None

    @property
    def tokens(self) -> int:
        """The tokens of its messages, estimated."""
        return sum(stored.part.tokens for stored in self.parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "number": self.number,
            "turn": self.turn,
            "provider": self.provider,
            "model": self.model,
            "parts": [part.to_json() for part in self.parts],
            "tools": list(self.tools),
            "parameters": dict(self.parameters),
            "tokens": self.tokens,
            "message_id": self.message_id,
            "response": None if self.response is None else dict(self.response.facts),
        }


async def requests(store: SessionStore, session_id: str) -> list[StoredRequest]:
    """Return every provider request of a session, in their order; the first has the number 1."""
    messages = await store.read_messages(session_id)
    reader = await in_thread(lambda stop: _Reader(store, session_id, messages))
    return await reader.read(await named_events(store.read_event_page, session_id, (REQUEST_STORED, RESPONSE_STORED)))


async def read_request(store: SessionStore, session_id: str, request_id: str) -> StoredRequest:
    """Return one provider request.

    Raises:
        StoredRequestNotFoundError: the session has no request of that id.
    """
    found = [request for request in await requests(store, session_id) if request.request_id == request_id]
    if not found:
        raise StoredRequestNotFoundError(
            f"session {session_id!r} has no provider request {request_id!r}",
            hint="the ids are in its events `request:stored`",
        )
    return found[0]


class _Reader:
    """Puts requests together from events, stored parts and the transcript."""

    def __init__(self, store: SessionStore, session_id: str, messages: Sequence[TranscriptMessage]) -> None:
        self._store, self._session_id, self._transcript = store, session_id, TranscriptIndex(messages)
        self._answers = {
            (message.get("turn"), message_digest(message)): message
            for message in messages
            if message.get("role") == "assistant"
        }
        self._contents: dict[str, Any] = {}
        self._parts: dict[str, tuple[StoredPart, ...]] = {}

    async def read(self, events: list[StoredEvent]) -> list[StoredRequest]:
        responses = {str(data.get("request_id")): data for _, data in named(events, RESPONSE_STORED)}
        found = []
        for number, (seq, data) in enumerate(named(events, REQUEST_STORED), 1):
            found.append(await self._request(number, seq, data, responses.get(str(data.get("request_id")))))
            await asyncio.sleep(0)  # a long session has many, each with all of its parts
        return found

    async def _request(
        self, number: int, seq: int, data: Mapping[str, Any], response: Mapping[str, Any] | None
    ) -> StoredRequest:
        request_id = str(data.get("request_id"))
        kept = self._parts.get(str(data.get("base")), ())[: int(data.get("keep") or 0)]
        added = [await self._part(RequestPart.from_json(part)) for part in data.get("add") or ()]
        parts = self._parts[request_id] = (*kept, *added)
        tools = await self._content(data.get("tools"))
        return StoredRequest(
            request_id=request_id,
            number=number,
            seq=seq,
            turn=int(data.get("turn") or 0),
            provider=str(data.get("provider")),
            model=data.get("model"),
            parts=parts,
            tools_hash=data.get("tools"),
            tools=tuple(tools) if isinstance(tools, list) else (),
            parameters=data.get("parameters") or {},
            response=None if response is None else self._response(response, data.get("turn")),
            facts=data,
        )

    async def _part(self, part: RequestPart) -> StoredPart:
        message = await self._message(part)
        return StoredPart(part, message, message is not None and message_digest(message) == part.hash)

    async def _message(self, part: RequestPart) -> Mapping[str, Any] | None:
        if part.stored is not None:
            stored = await self._content(part.stored)
            return stored if isinstance(stored, dict) else None
        known = self._transcript.find_id(part.message_id) if part.message_id else None
        if known is None:
            known = self._transcript.find(part.hash)
        if known is None:
            return None
        message = canonical_message(known)
        return message if part.changed is None else _changed(message, part.changed)

    async def _content(self, name: object) -> Any:
        if not isinstance(name, str):
            return None
        if name not in self._contents:
            data = await self._store.read_part(self._session_id, name)
            self._contents[name] = None if data is None else json.loads(data)
        return self._contents[name]

    def _response(self, facts: Mapping[str, Any], turn: object) -> StoredResponse:
        """Put a response to its message; the same words may have been said in several turns."""
        hash = str(facts.get("hash"))
        return StoredResponse(facts, self._answers.get((turn, hash)) or self._transcript.find(hash))


def named(events: list[StoredEvent], name: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the numbers and data of the events with a name."""
    found = (event for event in events if event.get("event") == name and isinstance(event.get("data"), dict))
    return [(int(event.get("seq") or 0), event["data"]) for event in found]


def _changed(message: Mapping[str, Any], changed: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a message in the form in which it was sent, None when that is not known."""
    original = message["content"]
    if "kept" not in changed or not isinstance(original, str):
        return None
    return {**message, "content": f"{changed['before']}{original[: changed['kept']]}{changed['after']}"}
