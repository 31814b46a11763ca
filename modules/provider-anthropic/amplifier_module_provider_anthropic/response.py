"""The vendor's answer as the kernel's response."""

import json
import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from amplifier_core import Usage
from amplifier_core.llm_errors import InvalidToolCallError
from amplifier_core.message_models import Degradation, RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_kit.providers.cost import TokenCounts, summed
from amplifier_kit.providers.response import ProviderResponse, read_rate_limits
from amplifier_kit.providers.stream import BlockType, StreamEvents
from amplifier_kit.types import Block

from .conversation import WIRE_METADATA

logger = logging.getLogger(__name__)

_ANNOUNCED: dict[str, BlockType] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "tool_use": "tool_use",
}
_RATE_LIMIT_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")


class Received:
    """One answer of the vendor, as far as it has come.

    `has_answered` says that the vendor's headers are there, `has_begun` that part of the message is. `usage` is known
    as soon as the vendor has told it, even if the answer is never completed.
    """

    def __init__(self, model: str) -> None:
        self.message: dict[str, Any] = {"model": model}
        self.headers: Mapping[str, str] = {}
        self.has_answered = False
        self.has_begun = False
        self.cost: Decimal | None = None
        self._blocks: dict[int, Block] = {}
        self._fragments: dict[int, list[str]] = {}
        self._unreadable: dict[int, str] = {}
        self.is_complete = False

    @property
    def content(self) -> list[Block]:
        """The blocks, without tool calls that were cut off before their arguments were complete."""
        blocks: list[Block] = self.message.get("content") or []
        return blocks

    @property
    def usage(self) -> dict[str, Any]:
        usage = self.message.get("usage")
        return usage if isinstance(usage, dict) else {}

    @property
    def model(self) -> str:
        """The model that the vendor reports, else the one that was asked for."""
        return str(self.message["model"])

    @property
    def stop_reason(self) -> str | None:
        reason = self.message.get("stop_reason")
        return None if reason is None else str(reason)

    @property
    def rate_limits(self) -> dict[str, Any] | None:
        """What the headers tell about the limits of the account, None when they tell nothing."""
        limits = read_rate_limits(self.headers, "anthropic-ratelimit-{kind}-{part}", _RATE_LIMIT_KINDS)
        wait_s = _number(self.headers.get("retry-after", ""))
        return (limits if wait_s is None else {**limits, "retry_after_seconds": wait_s}) or None

    def take_whole(self, message: dict[str, Any]) -> None:
        """Take an answer that was not streamed."""
        self.message = {"model": self.model, **message}
        self._blocks = dict(enumerate(self.content))
        if self.stop_reason == "max_tokens" and self._blocks and self.content[-1].get("type") == "tool_use":
            self._unreadable[len(self._blocks) - 1] = json.dumps(self.content[-1].get("input"))
        self._unreadable |= {
            index: json.dumps(block.get("input"))
            for index, block in self._blocks.items()
            if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict)
        }
        self.is_complete = True

    async def take(self, event: dict[str, Any], stream: StreamEvents) -> None:
        """Take one event of a stream; what is not known is ignored."""
        self.has_begun = True
        match event:
            case {"type": "message_start", "message": dict() as message}:
                self.message |= message
            case {"type": "content_block_start", "index": int() as index, "content_block": dict() as block}:
                await self._start(index, dict(block), stream)
            case {"type": "content_block_delta", "index": int() as index, "delta": dict() as delta}:
                await self._extend(index, delta, stream)
            case {"type": "content_block_stop", "index": int() as index}:
                self._close(index)
                await stream.end(index)
            case {"type": "message_delta"}:
                self._amend(event)
            case {"type": "message_stop"}:
                self.is_complete = True
            case _:
                logger.debug("an event of type %s is ignored", event.get("type"))

    def check(self) -> None:
        """Put the message together; raises `InvalidToolCallError` when a tool call cannot be read, unless it was cut
        off at the limit of tokens: such a call is left out."""
        if self._unreadable and self.stop_reason != "max_tokens":
            index, raw = next(iter(self._unreadable.items()))
            name = str(self._blocks[index].get("name"))
            message = f"the model called {name!r} with arguments that are not a JSON object"
            raise InvalidToolCallError(
                message, tool_name=name, raw_arguments=raw, provider="anthropic", model=self.model, retryable=True
            )
        for index in self._unreadable:
            logger.warning("a call of %r was cut off and is left out", self._blocks[index].get("name"))
        self.message["content"] = [
            block for index, block in sorted(self._blocks.items()) if index not in self._unreadable
        ]

    async def _start(self, index: int, block: Block, stream: StreamEvents) -> None:
        self._blocks[index] = block
        if kind := _ANNOUNCED.get(str(block.get("type"))):
            await stream.start(index, kind, name=block.get("name"))
            await stream.delta(index, block.get("text") or block.get("thinking") or "")

    async def _extend(self, index: int, delta: dict[str, Any], stream: StreamEvents) -> None:
        block = self._blocks.get(index)
        if block is None:
            return
        match delta:
            case {"type": "text_delta", "text": str() as text}:
                block["text"] = block.get("text", "") + text
                await stream.delta(index, text)
            case {"type": "thinking_delta", "thinking": str() as thinking}:
                block["thinking"] = block.get("thinking", "") + thinking
                await stream.delta(index, thinking)
            case {"type": "signature_delta", "signature": str() as signature}:
                block["signature"] = (block.get("signature") or "") + signature
            case {"type": "input_json_delta", "partial_json": str() as fragment}:
                self._fragments.setdefault(index, []).append(fragment)
            case {"type": "citations_delta", "citation": citation}:
                block["citations"] = [*(block.get("citations") or []), citation]
            case _:
                logger.debug("a delta of type %s is ignored", delta.get("type"))

    def _close(self, index: int) -> None:
        """Read the arguments of a tool call once all of them are there."""
        block = self._blocks.get(index, {})
        raw = "".join(self._fragments.pop(index, ()))
        if not raw.strip():
            return
        try:
            arguments = json.loads(raw)
        except (ValueError, RecursionError):
            arguments = None
        if isinstance(arguments, dict):
            block["input"] = arguments
        elif block.get("type") == "tool_use":
            self._unreadable[index] = raw

    def _amend(self, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        self.message |= {key: value for key, value in (delta or {}).items() if value is not None}
        found = event.get("usage")
        self.message["usage"] = {
            **self.usage,
            **{key: value for key, value in (found or {}).items() if value is not None},
        }
        if self.stop_reason != "max_tokens" or not self._blocks:
            return
        last = max(self._blocks)
        if self._blocks[last].get("type") == "tool_use" and not self._blocks[last].get("input"):
            self._unreadable.setdefault(last, "")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_CONVERTED = frozenset({"text", "tool_use"})  # without loss: of others the vendor's own form is kept too


class AnthropicChatResponse(ProviderResponse):
    """A response of Claude; `metadata["anthropic"]` has what has to go back to the vendor unchanged."""


def build_response(
    answers: Sequence[Received], *, shows_updates: bool, degradation: Degradation | None
) -> AnthropicChatResponse:
    """Return one response for the answers of a call; there are several when the vendor paused in between."""
    wire = [block for answer in answers for block in answer.content]
    last = answers[-1]
    content = [block for given in wire if (block := _block(given, shows_updates=shows_updates)) is not None]
    own: dict[str, Any] = {}
    if any(str(block.get("type")) not in _CONVERTED for block in wire):
        own |= {"model": last.model, "wire_content": wire}
    if (details := last.message.get("stop_details")) is not None:
        own["stop_details"] = details
    return AnthropicChatResponse.of(
        content,
        usage=summed([read_usage(answer.usage).model_copy(update={"cost_usd": answer.cost}) for answer in answers]),
        finish_reason=last.stop_reason,
        degradation=degradation,
        metadata={WIRE_METADATA: own} if own else None,
    )


def read_usage(reported: dict[str, Any]) -> Usage:
    """Return what a call used; input counts what was read from the cache, not what was written to it."""
    read, written = (_count(reported, f"cache_{act}_input_tokens") for act in ("read", "creation"))
    taken = _count(reported, "input_tokens") + read
    given = _count(reported, "output_tokens")
    details = reported.get("output_tokens_details")
    thought = details.get("thinking_tokens") if isinstance(details, dict) else None
    extras = {
        name: reported[name] for name in ("cache_creation_input_tokens", "cache_read_input_tokens") if name in reported
    }
    return Usage(
        input_tokens=taken,
        output_tokens=given,
        total_tokens=taken + given,
        cache_read_tokens=read or None,
        cache_write_tokens=written or None,
        reasoning_tokens=thought if isinstance(thought, int) else None,
        **extras,
    )


def token_counts(reported: dict[str, Any]) -> TokenCounts:
    """Return what a price is calculated from; writes that last an hour cost more than others."""
    creation = reported.get("cache_creation")
    one_hour = _count(creation, "ephemeral_1h_input_tokens") if isinstance(creation, dict) else 0
    return TokenCounts.of(read_usage(reported), cache_write_1h_tokens=one_hour)


def _block(given: Block, *, shows_updates: bool) -> Any:
    match given:
        case {"type": "text", "text": str() as text}:
            citations = given.get("citations")
            return TextBlock(text=text, **({"citations": citations} if citations else {}))
        case {"type": "thinking"}:
            thinking, signature = _text(given, "thinking") or "", _text(given, "signature")
            block = ThinkingBlock(thinking=thinking, signature=signature, visibility="internal")
            updates: dict[str, Any] = {"visibility": "user", "progress_update": True}
            return block.model_copy(update=updates) if shows_updates and thinking else block
        case {"type": "redacted_thinking", "data": str() as data}:
            return RedactedThinkingBlock(data=data, visibility="internal")
        case {"type": "tool_use", "id": str() as call_id, "name": str() as name}:
            return ToolCallBlock(id=call_id, name=name, input=given.get("input") or {})
    logger.debug("a block of type %s is kept for the vendor only", given.get("type"))
    return None


def _text(given: Block, name: str) -> str | None:
    value = given.get(name)
    return value if isinstance(value, str) else None


def _count(reported: dict[str, Any], name: str) -> int:
    value = reported.get(name)
    return value if isinstance(value, int) else 0
