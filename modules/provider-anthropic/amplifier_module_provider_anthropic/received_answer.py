"""What arrives for one request, piece by piece or at once, put together to one message."""

import json
import logging
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from amplifier_core.llm_errors import InvalidToolCallError
from amplifier_kit.providers.rate_limits import read_rate_limits
from amplifier_kit.providers.stream import BlockType, StreamEvents
from amplifier_kit.types import Block

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
        told = event.get("usage")
        self.message["usage"] = {
            **self.usage,
            **{key: value for key, value in (told or {}).items() if value is not None},
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
