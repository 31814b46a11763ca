"""What a provider call may use at most, estimated before it is made."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import amplifier_core
from amplifier_core.boundary import Boundary, settle
from amplifier_kit.messages.token_estimate import estimate_message, estimate_messages
from amplifier_kit.providers.cost import Prices, TokenCounts
from amplifier_kit.providers.identity_cache import IdentityCache

from .calls import ProviderCall
from .shared_prefix import shared_prefix
from .usage import NOTHING, Usage

logger = logging.getLogger(__name__)

DEFAULT_OUTPUT_TOKENS = 4096
"""The longest output of a model about which neither the request nor its provider says anything."""


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """A call's model, its input, and its output at most; a cost of None is unknown."""

    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class CallEstimator:
    """Estimates the calls of one session. A message is counted once, however many requests it is in."""

    def __init__(self) -> None:
        self._counted: IdentityCache[int] = IdentityCache()
        self._messages: Sequence[object] = ()
        self._counts: list[int] = []
        self._facts: IdentityCache[_ProviderFacts] = IdentityCache()
        self._paid: dict[str, Usage] = {}

    async def estimate(self, call: ProviderCall, *, priced: bool = True) -> CallEstimate:
        """Return what a call may take; without `priced`, its price is not asked for."""
        facts = self._facts.get(call.provider, _ProviderFacts)
        request = call.request
        model = str(request.model or call.options.get("model") or facts.model)
        counted = self._count(request.messages) + sum(self._counted.get_all(request.tools or (), estimate_message))
        output = request.max_output_tokens or facts.max_output_tokens
        cost = await self._cost_of(call.provider, facts, model, TokenCounts(counted, output)) if priced else None
        return CallEstimate(model, counted, output, cost)

    async def cost_of(self, call: ProviderCall, model: str, input_tokens: int, output_tokens: int) -> Decimal | None:
        """Return what a call of that size costs, None when no price is known."""
        facts = self._facts.get(call.provider, _ProviderFacts)
        return await self._cost_of(call.provider, facts, model, TokenCounts(input_tokens, output_tokens))

    def used(self, estimate: CallEstimate, response: amplifier_core.ChatResponse) -> Usage:
        """Return what a call used: what its response reports, else an estimate."""
        reported = response.usage
        if reported is None:
            output = estimate_messages(response.content)
            total = estimate.input_tokens + output
            reported = amplifier_core.Usage(
                input_tokens=estimate.input_tokens, output_tokens=output, total_tokens=total
            )
        model = getattr(response, "model", None) or (response.metadata or {}).get("model") or estimate.model
        used = Usage.of_call(reported, str(model))
        self._paid[estimate.model] = self._paid.get(estimate.model, NOTHING) + used
        return used

    def _count(self, messages: Sequence[object]) -> int:
        known = shared_prefix(messages, self._messages)
        self._counts[known:] = self._counted.get_all(messages[known:], estimate_message)
        self._messages = messages[:]
        return sum(self._counts)

    async def _cost_of(self, provider: Any, facts: _ProviderFacts, model: str, counts: TokenCounts) -> Decimal | None:
        """Ask the provider, else the price list, else what the model's earlier calls cost by the token."""
        ask = getattr(provider, "estimate_cost", None)
        if callable(ask):
            with Boundary(logger, "provider %r cannot estimate its cost: %s", facts.provider_id):
                cost = await settle(ask(model, counts.input_tokens, counts.output_tokens))
                return cost if isinstance(cost, Decimal) else None
        paid = self._paid.get(model, NOTHING)
        if paid.unpriced_tokens:
            return None
        listed = await facts.prices.cost_of(model, counts) if facts.prices is not None else None
        if listed is not None or paid.cost_usd is None or not paid.tokens.total:
            return listed
        return paid.cost_usd / paid.tokens.total * (counts.input_tokens + counts.output_tokens)


class _ProviderFacts:
    """What a provider says about itself, asked once."""

    def __init__(self, provider: Any) -> None:
        info = None
        with Boundary(logger, "a provider cannot describe itself: %s", level=logging.DEBUG):
            info = provider.get_info()
        given = getattr(info, "defaults", None)
        defaults = given if isinstance(given, Mapping) else {}
        config = getattr(provider, "config", None)
        configured = config.get("max_tokens") if isinstance(config, Mapping) else None
        self.provider_id = str(getattr(info, "id", None) or getattr(provider, "name", ""))
        self.model = str(getattr(provider, "default_model", None) or defaults.get("model") or self.provider_id)
        known = (configured, defaults.get("max_output_tokens"), defaults.get("max_tokens"))
        self.max_output_tokens = next((n for n in known if isinstance(n, int) and n > 0), DEFAULT_OUTPUT_TOKENS)
        has_list = importlib.util.find_spec("genai_prices") is not None
        self.prices = Prices(self.provider_id, {}, provider_id=self.provider_id) if has_list else None
