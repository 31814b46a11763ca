"""One call of the provider: what was asked for, and what could not be done."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_kit.providers.call import ProviderCall
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.providers.options import CallOptions, Shortfalls

from .settings import ModelFacts, OpenAISettings


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request to send. A chained one says only what is new; `full_input` is the whole conversation."""

    body: dict[str, Any]
    full_input: list[dict[str, Any]] = field(default_factory=list)
    chained_to: str | None = None

    def unchained(self) -> dict[str, Any]:
        """Return the body with the whole conversation in it."""
        rest = {key: value for key, value in self.body.items() if key != "previous_response_id"}
        return {**rest, "input": self.full_input}


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request on its way, its messages in plain form: `stored` as they came, `messages` in the order to be sent.

    `given` are the caller's keywords; `is_repaired` tells that results had to be made up for calls that had none.
    """

    call: ProviderCall
    request: ChatRequest
    given: dict[str, Any]
    options: CallOptions
    facts: ModelFacts
    stored: list[NormalMessage]
    messages: list[NormalMessage]
    is_repaired: bool
    shortfalls: Shortfalls

    @property
    def tools(self) -> list[Any]:
        """The tools of the request, then those of the keyword `tools`."""
        return [*(self.request.tools or ()), *(self.given.get("tools") or ())]


# What the requests of both APIs ask for in the same way.


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
