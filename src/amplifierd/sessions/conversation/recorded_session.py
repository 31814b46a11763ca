"""A session as it was recorded: its prompts, its provider requests with their answers, and its tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from amplifier_core import ChatResponse, LLMError, TextBlock, ToolCall, ToolResult, llm_errors
from amplifier_core.utils.tool_messages import calls_in
from amplifier_kit.loops.settings import STEERING_INJECTED
from amplifier_sessions.event_page import named_events
from amplifierd.exceptions import ReplayError
from amplifierd.sessions.layers.budget_layer import BUDGET_EXHAUSTED
from amplifierd.sessions.layers.receipts import INTENT, OUTCOME, ReadPart, whole_outcome
from amplifierd.sessions.recordings.stored_requests import StoredRequest, named, requests
from amplifierd.store.protocol import Message, SessionStore, StoredEvent
from amplifierd.store.record import SessionRecord

_NEEDED = frozenset({INTENT, OUTCOME, BUDGET_EXHAUSTED, STEERING_INJECTED})
"""The names of the events that a replay needs, beside those of requests."""


@dataclass(frozen=True)
class RecordedCall:
    """A tool call that reached its tool; `outcome` is None when it was interrupted."""

    tool_name: str
    input_hash: str
    outcome: Mapping[str, Any] | None = None

    def result(self) -> ToolResult:
        """Return what the tool returned."""
        outcome = self.outcome or {}
        given = outcome.get("result")
        result = given if isinstance(given, Mapping) else {}
        content = outcome.get("content")
        blocks = content if isinstance(content, list) and content else None
        return ToolResult(
            success=bool(outcome.get("success")),
            output=result.get("output"),
            error=result.get("error"),
            content=blocks,
        )


@dataclass(frozen=True)
class RecordedTurn:
    """A prompt and the provider requests that it led to; `steering` has what was said meanwhile, by request.

    `refused` has the answers to tool calls that a limit kept from running.
    """

    number: int
    prompt: str
    images: tuple[Mapping[str, Any], ...]
    requests: tuple[StoredRequest, ...]
    steering: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedSession:
    """Everything that a replay needs; `earlier` are the messages of turns from before requests were recorded."""

    record: SessionRecord
    turns: tuple[RecordedTurn, ...]
    calls: Mapping[str, RecordedCall]
    earlier: tuple[Message, ...] = ()

    @classmethod
    async def load(cls, store: SessionStore, session_id: str) -> RecordedSession:
        """Read a session; nothing is changed.

        Raises:
            ReplayError: it has no recorded provider request.
        """
        record = await store.read(session_id)
        messages = await store.read_messages(session_id)
        events = await named_events(store.read_event_page, session_id, _NEEDED)
        kept = _still_there(await requests(store, session_id), messages)
        if not kept:
            raise ReplayError(
                f"session {session_id} cannot be replayed: it has no recorded provider request",
                hint="only turns that ran in this version are recorded; run a turn first",
            )
        first = min(request.turn for request in kept)
        numbers = sorted({request.turn for request in kept})
        calls = await _calls(events, partial(store.read_part, session_id))
        turns = tuple(_turn(number, messages, kept, events, calls) for number in numbers)
        earlier = tuple(message for message in messages if int(message.get("turn") or 0) < first)
        return cls(record, turns, calls, earlier)

    @property
    def requests(self) -> tuple[StoredRequest, ...]:
        return tuple(request for turn in self.turns for request in turn.requests)


def answer_to(request: StoredRequest) -> ChatResponse:
    """Return the response that a recorded request got.

    Raises:
        LLMError: it got an error.
        ReplayError: what came back is not known.
    """
    response = request.response
    if response is None:
        raise ReplayError(f"request {request.number} has no answer in the record: its turn was interrupted")
    if error := response.error:
        raise _error(error, request)
    facts = {"usage": response.facts.get("usage"), "finish_reason": response.facts.get("finish_reason")}
    if response.is_empty:
        return ChatResponse.model_validate({"content": [], **facts})
    if response.message is None:
        raise ReplayError(f"the answer to request {request.number} is not in the transcript")
    content, metadata = response.message.get("content"), response.message.get("metadata")
    blocks = content if isinstance(content, list) else [TextBlock(text=content)] if content else []
    calls = [ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls_in(response.message)]
    return ChatResponse.model_validate({"content": blocks, "tool_calls": calls or None, "metadata": metadata, **facts})


def _error(error: Mapping[str, Any], request: StoredRequest) -> Exception:
    kind = getattr(llm_errors, str(error.get("type")), None)
    message = str(error.get("message"))
    if isinstance(kind, type) and issubclass(kind, LLMError):
        return kind(message, provider=request.provider, retryable=error.get("retryable"))
    return RuntimeError(message)


def _still_there(found: Sequence[StoredRequest], messages: Sequence[Message]) -> list[StoredRequest]:
    """Return the requests of turns that were not taken back later: every message they refer to is there."""
    known = {message.get("id") for message in messages}
    return [
        request
        for request in found
        if all(part.part.message_id is None or part.part.message_id in known for part in request.parts)
    ]


def _turn(
    number: int,
    messages: Sequence[Message],
    kept: Sequence[StoredRequest],
    events: Sequence[StoredEvent],
    calls: Mapping[str, RecordedCall],
) -> RecordedTurn:
    mine = tuple(request for request in kept if request.turn == number)
    said = [message for message in messages if message.get("turn") == number]
    spoken = [message for message in said if message.get("role") == "user"]
    if not spoken:
        raise ReplayError(f"the prompt of turn {number} is not in the transcript")
    prompt = spoken[0].get("content")
    images = spoken[1].get("content") if len(spoken) > 1 else None
    are_images = isinstance(images, list) and all(block.get("type") == "image" for block in images)
    return RecordedTurn(
        number,
        prompt if isinstance(prompt, str) else "",
        tuple(images) if are_images and isinstance(images, list) else (),
        mine,
        _steering(mine, events),
        _refused(mine, said, kept, events, calls),
    )


def _refused(
    mine: Sequence[StoredRequest],
    said: Sequence[Message],
    kept: Sequence[StoredRequest],
    events: Sequence[StoredEvent],
    calls: Mapping[str, RecordedCall],
) -> dict[str, Any]:
    """Return the results of calls that did not run in a turn that a limit ended."""
    later = [request.seq for request in kept if request.seq > mine[-1].seq]
    end = min(later, default=None)
    seqs = [seq for seq, _ in named([*events], BUDGET_EXHAUSTED) if seq > mine[0].seq and (end is None or seq < end)]
    if not seqs:
        return {}
    results = (
        (str(message.get("tool_call_id")), message.get("content")) for message in said if message["role"] == "tool"
    )
    return {call_id: content for call_id, content in results if call_id not in calls}


def _steering(mine: Sequence[StoredRequest], events: Sequence[StoredEvent]) -> dict[str, tuple[str, ...]]:
    """Return what was said during a turn, by the request that was being answered then."""
    said: dict[str, tuple[str, ...]] = {}
    for seq, data in named([*events], STEERING_INJECTED):
        before = [request for request in mine if request.seq < seq]
        after = [request for request in mine if request.seq > seq]
        if before and after:
            request_id = before[-1].request_id
            said[request_id] = (*said.get(request_id, ()), str(data.get("content")))
    return said


async def _calls(events: Sequence[StoredEvent], read_part: ReadPart) -> dict[str, RecordedCall]:
    calls: dict[str, RecordedCall] = {}
    for _, data in named([*events], INTENT):
        calls[str(data.get("tool_call_id"))] = RecordedCall(str(data.get("tool_name")), str(data.get("input_hash")))
    for _, data in named([*events], OUTCOME):
        call_id = str(data.get("tool_call_id"))
        if call_id in calls:
            begun, outcome = calls[call_id], await whole_outcome(data, read_part)
            calls[call_id] = RecordedCall(begun.tool_name, begun.input_hash, outcome)
    return calls
