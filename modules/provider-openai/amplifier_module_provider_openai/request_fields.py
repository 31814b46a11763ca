"""What the requests of both APIs ask for in the same way."""

from collections.abc import Iterable
from typing import Any

from amplifier_core.llm_errors import InvalidRequestError

from .pending_request import PendingRequest
from .settings import OpenAISettings


def note_lost(asked: PendingRequest, kinds: Iterable[str]) -> None:
    """Tell what kinds of blocks were replaced by a text."""
    for kind in sorted(kinds):
        what = "images" if kind == "image" else f"blocks of type {kind}"
        asked.shortfalls.add(what, f"a text replaces the {kind}", f"the model or the API does not accept the {kind}")


def output_cap(asked: PendingRequest, settings: OpenAISettings) -> int | None:
    """Return the most tokens to answer with; a thinking budget comes on top of what a short cap would leave."""
    cap = asked.options.max_output_tokens
    budget = thinking_budget(asked, settings)
    if budget:
        buffer = asked.given.get("thinking_budget_buffer") or settings.thinking_budget_buffer
        cap = max(cap or 0, budget + buffer)
    return cap


def thinking_budget(asked: PendingRequest, settings: OpenAISettings) -> int | None:
    """Return the tokens for thinking, None unless the call asks for extended thinking."""
    if not asked.given.get("extended_thinking"):
        return None
    return asked.given.get("thinking_budget_tokens") or settings.thinking_budget_tokens or None


def resolve_reasoning(asked: PendingRequest, settings: OpenAISettings) -> dict[str, Any] | None:
    """Return what is asked of the model's reasoning, None for nothing."""
    wanted = asked.options.reasoning
    if wanted is None and asked.given.get("extended_thinking"):
        wanted = "high"
    if wanted is None:
        return {"summary": "auto"} if asked.facts.default_reasoning_effort else None
    given = wanted if isinstance(wanted, dict) else {"effort": wanted}
    reasoning = {"effort": "medium", "summary": settings.reasoning_summary} | given
    allowed = asked.facts.reasoning_efforts
    if allowed is not None and reasoning["effort"] not in allowed:
        raise InvalidRequestError(
            f"{asked.options.model} does not take reasoning effort {reasoning['effort']!r}; allowed: "
            + ", ".join(allowed),
            provider=asked.call.provider,
            model=asked.options.model,
        )
    return reasoning
