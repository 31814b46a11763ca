"""The vendor's answer as the kernel's response."""

import logging
from collections.abc import Sequence
from typing import Any

from amplifier_core import Usage
from amplifier_core.message_models import Degradation, RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_kit.providers.cost import TokenCounts, summed
from amplifier_kit.providers.response import ProviderResponse
from amplifier_kit.types import Block

from .conversation import WIRE_METADATA
from .received_answer import Received

logger = logging.getLogger(__name__)

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


def read_usage(told: dict[str, Any]) -> Usage:
    """Return what a call used; input counts what was read from the cache, not what was written to it."""
    read, written = (_count(told, f"cache_{act}_input_tokens") for act in ("read", "creation"))
    taken = _count(told, "input_tokens") + read
    given = _count(told, "output_tokens")
    details = told.get("output_tokens_details")
    thought = details.get("thinking_tokens") if isinstance(details, dict) else None
    extras = {name: told[name] for name in ("cache_creation_input_tokens", "cache_read_input_tokens") if name in told}
    return Usage(
        input_tokens=taken,
        output_tokens=given,
        total_tokens=taken + given,
        cache_read_tokens=read or None,
        cache_write_tokens=written or None,
        reasoning_tokens=thought if isinstance(thought, int) else None,
        **extras,
    )


def token_counts(told: dict[str, Any]) -> TokenCounts:
    """Return what a price is calculated from; writes that last an hour cost more than others."""
    creation = told.get("cache_creation")
    one_hour = _count(creation, "ephemeral_1h_input_tokens") if isinstance(creation, dict) else 0
    return TokenCounts.of(read_usage(told), cache_write_1h_tokens=one_hour)


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


def _count(told: dict[str, Any], name: str) -> int:
    value = told.get(name)
    return value if isinstance(value, int) else 0
