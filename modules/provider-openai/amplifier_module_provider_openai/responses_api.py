"""A call through the Responses API: one answer, however many requests it takes."""

import logging
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import LLMError, Usage
from amplifier_core.utils import json_safe
from amplifier_kit.providers.cost import summed
from amplifier_kit.providers.errors import VendorFailure
from amplifier_kit.providers.stream import BlockType, StreamEvents

from .pending_request import PendingRequest, Prepared
from .responses_items import Answer, RequestBuilder
from .sender import RESPONSES_FIELDS, CompleteAnswer, Link, RefusedFields, Sender, priced, rate_limits, responses_usage
from .transport import OpenAIErrors, Reply, message_of, refusal_of

# The answer of the Responses API, streamed or not, as one response object.


_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_BLOCKS: dict[str, BlockType] = {"message": "text", "reasoning": "thinking", "function_call": "tool_use"}
_DELTAS: dict[str, BlockType] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
}


@dataclass(frozen=True, slots=True)
class Received:
    """A response object as the vendor completed it, and the headers it came with."""

    response: dict[str, Any]
    headers: dict[str, str]


class ResponseCollector:
    """Reads one answer. `first_index` is the place of its first block, when it continues another answer."""

    def __init__(self, errors: OpenAIErrors, model: str, *, first_index: int = 0) -> None:
        self._errors = errors
        self._model = model
        self._first_index = first_index
        self._items: dict[int, dict[str, Any]] = {}
        self._started: set[int] = set()

    async def collect(self, reply: Reply, stream: StreamEvents) -> Received:
        """Return the response, which may have failed; a stream that did not come to its end is a `StreamError`."""
        response = await self._read(reply, stream) if reply.is_stream else await reply.document()
        if not response.get("output") and self._items:
            response = {**response, "output": [self._items[index] for index in sorted(self._items)]}
        return Received(response, reply.headers)

    async def _read(self, reply: Reply, stream: StreamEvents) -> dict[str, Any]:
        async for event in reply:
            kind = event.get("type")
            if kind in _TERMINAL:
                await stream.end_all()
                await reply.drain()
                response = event.get("response")
                return response if isinstance(response, dict) else {}
            if kind == "error":
                raise self._errors.in_stream(event, model=self._model)
            await self._publish(str(kind), event, stream)
        raise self._errors.broke_off("the stream ended without a final event", model=self._model)

    async def _publish(self, kind: str, event: dict[str, Any], stream: StreamEvents) -> None:
        place = event.get("output_index")
        if not isinstance(place, int):
            return
        index = self._first_index + place
        if kind == "response.output_item.added":
            await self._start(index, event.get("item") or {}, stream)
        elif kind == "response.output_item.done":
            self._items[place] = event.get("item") or {}
            await self._start(index, self._items[place], stream)
            await stream.end(index)
        elif kind in _DELTAS:
            if index not in self._started:
                self._started.add(index)
                await stream.start(index, _DELTAS[kind])
            await stream.delta(index, str(event.get("delta") or ""))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            await stream.delta(index, "\n")

    async def _start(self, index: int, item: dict[str, Any], stream: StreamEvents) -> None:
        block_type = _BLOCKS.get(str(item.get("type")))
        if block_type and index not in self._started:
            self._started.add(index)
            await stream.start(index, block_type, name=item.get("name"))


logger = logging.getLogger(__name__)

CONTINUATION = "provider:incomplete_continuation"
CHAIN_INVALIDATED = "provider:response_chain_invalidated"

_MAX_CONTINUATIONS = 5
_LOST_RESPONSE = frozenset({"response_not_found", "previous_response_not_found"})
_FOUND_OUT = _LOST_RESPONSE | {"model_not_found"}
_NO_SUCH_API = frozenset({404, 405, 501})
_MISSING_MODEL = re.compile(r"\bmodel\b.*\b(not found|does not exist)\b", re.IGNORECASE)


@dataclass(slots=True)
class _Progress:
    """An answer that is still growing."""

    answer: Answer = field(default_factory=Answer)
    usages: list[Usage] = field(default_factory=list)
    last: Received | None = None


class ResponsesApi:
    """Talks to `/responses`."""

    name = "responses"

    def __init__(self, link: Link) -> None:
        self._link = link
        self._builder = RequestBuilder(link.settings, link.warn)
        is_tolerant = not link.settings.is_default_host
        self._sender = Sender(link, "/responses", RefusedFields(RESPONSES_FIELDS) if is_tolerant else None)

    def is_missing(self, error: LLMError) -> bool:
        """True if an error tells that the server does not have this API, rather than what was asked of it."""
        failure = refusal_of(error)
        if failure is None or failure.status not in _NO_SUCH_API or failure.codes & _FOUND_OUT:
            return False
        return not _MISSING_MODEL.search(message_of(failure))

    def probe(self, is_probing: bool) -> None:
        """Take it as final, or not, when the server says that it has no such API."""
        self._sender.final_statuses = _NO_SUCH_API if is_probing else frozenset()

    def build(self, asked: PendingRequest) -> Prepared:
        """Return the request for a call."""
        return self._builder.build(asked)

    async def complete(self, asked: PendingRequest, request: Prepared) -> CompleteAnswer:
        """Return the whole answer: one that was cut off by the configured cap is continued."""
        progress = _Progress()
        try:
            await self._advance(asked, request.body, progress)
        except LLMError as error:
            failure = refusal_of(error)
            if not request.chained_to or failure is None or not _is_chain_lost(failure):
                raise
            await self._note_lost_chain(asked, request, failure)
            await self._advance(asked, request.unchained(), progress)
        await self._continue(asked, request, progress)
        return self._complete_answer(progress)

    async def _advance(self, asked: PendingRequest, body: dict[str, Any], progress: _Progress) -> None:
        """Send one request and take its answer in."""
        link, model = self._link, asked.options.model

        async def collect(reply: Reply, stream: StreamEvents) -> tuple[Received, Answer]:
            collector = ResponseCollector(link.errors, model, first_index=progress.answer.output_count)
            received = await collector.collect(reply, stream)
            try:
                answer = self._grown(progress.answer, received, model)
            except Exception:
                link.add_cost((await self._usage(received, model)).cost_usd)
                raise
            return received, answer

        async def send() -> None:
            received, progress.answer = await self._sender.send(asked, body, collect)
            progress.usages.append(await self._usage(received, model))
            progress.last = received

        await self._sender.send_twice(asked, send)

    def _grown(self, answer: Answer, received: Received, model: str) -> Answer:
        """Return the answer with what was received; the given one stays as it is, for the next attempt."""
        response = received.response
        if response.get("status") == "failed":
            raise self._link.errors.in_stream(response.get("error") or "the response failed", model=model)
        grown = deepcopy(answer)
        grown.add(response, provider=self._link.provider, model=model)
        return grown

    async def _continue(self, asked: PendingRequest, request: Prepared, progress: _Progress) -> None:
        has_raised_cap = False
        while self._may_continue(asked, progress.answer) and not (progress.answer.has_partial_call and has_raised_cap):
            answer = progress.answer
            body = request.unchained()
            body["input"] = [*body["input"], *answer.continuation_input()]
            if answer.has_partial_call:
                has_raised_cap = True
                body["max_output_tokens"] = asked.facts.max_output_tokens
            answer.continuations += 1
            await self._announce_continuation(answer)
            try:
                await self._advance(asked, body, progress)
            except LLMError as error:
                answer.continuations -= 1
                logger.warning("%s: the answer could not be continued: %s", self._link.provider, error)
                return

    def _may_continue(self, asked: PendingRequest, answer: Answer) -> bool:
        is_caller_content = asked.request.max_output_tokens is not None or bool(answer.calls)
        return answer.is_cut and not is_caller_content and answer.continuations < _MAX_CONTINUATIONS

    def _complete_answer(self, progress: _Progress) -> CompleteAnswer:
        assert progress.last is not None
        return _complete_answer(
            progress.answer,
            summed(progress.usages),
            raw=progress.last.response,
            rate_limits=rate_limits(progress.last.headers),
            continuation_count=progress.answer.continuations or None,
        )

    async def _usage(self, received: Received, model: str) -> Usage:
        reported = received.response.get("usage")
        usage = responses_usage(reported)
        if not reported:
            return usage
        return await priced(usage, self._link.prices, received.response.get("model"), model)

    async def _announce_continuation(self, answer: Answer) -> None:
        payload = {
            "provider": self._link.provider,
            "response_id": answer.metadata.get("openai:response_id"),
            "reason": answer.metadata.get("openai:incomplete_reason", "max_output_tokens"),
            "continuation_number": answer.continuations,
            "max_attempts": _MAX_CONTINUATIONS,
        }
        await self._link.events.emit(CONTINUATION, payload)

    async def _note_lost_chain(self, asked: PendingRequest, request: Prepared, failure: VendorFailure) -> None:
        payload = {
            "provider": self._link.provider,
            "model": asked.options.model,
            "invalidated_id": request.chained_to,
            "error_code": _code_of(failure),
        }
        if not self._link.settings.is_default_host:
            self._builder.is_chaining_lost = True
        logger.warning("%s: the vendor no longer has %s; all is sent", self._link.provider, request.chained_to)
        await self._link.events.emit(CHAIN_INVALIDATED, payload)


def answer_of(response: Any) -> CompleteAnswer:
    """Return what a response object says; a mapping, the vendor's own object, or any other with the same fields."""
    document = json_safe(response)
    if not isinstance(document, dict):
        raise TypeError(f"a response object is expected, not {type(response).__name__}")
    answer = Answer()
    answer.add(document)
    return _complete_answer(answer, responses_usage(document.get("usage")), raw=document)


def _complete_answer(answer: Answer, usage: Usage, *, raw: dict[str, Any], **facts: Any) -> CompleteAnswer:
    texts = [block.text for block in answer.content if block.type == "text"]
    return CompleteAnswer(
        content=answer.content,
        usage=usage,
        finish_reason=answer.finish_reason,
        metadata=answer.metadata,
        raw=raw,
        fields={"output_text": "".join(texts)},
        facts=facts,
    )


def _code_of(failure: VendorFailure) -> str | None:
    """Return the vendor's code for what went wrong, whether or not its client took the frame off."""
    body = failure.body if isinstance(failure.body, Mapping) else {}
    inner = body.get("error")
    code = body.get("code") or (inner.get("code") if isinstance(inner, Mapping) else None)
    return None if code is None else str(code)


def _is_chain_lost(failure: VendorFailure) -> bool:
    """True if a request was refused because the response it continues is gone."""
    if failure.status not in (400, 404):
        return False
    body = failure.body if isinstance(failure.body, Mapping) else {}
    names_id = "previous_response_id" in f"{body.get('param')} {message_of(failure)}"
    return bool(failure.codes & _LOST_RESPONSE) or names_id
