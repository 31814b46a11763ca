"""The models that the vendor offers."""

from collections.abc import Iterable
from typing import Any

from amplifier_core import ModelInfo
from amplifier_core.models import Pricing
from amplifier_kit.providers.cost import Prices, TokenCounts

from .model_facts import ModelFacts, facts_of
from .settings import AnthropicSettings

_SAMPLE_TOKENS = 1000  # small enough for the price that holds for short requests


class Catalog:
    """What is known about models; the vendor's list, once it was asked for, corrects what comes with the module."""

    def __init__(self, settings: AnthropicSettings, prices: Prices) -> None:
        self._settings = settings
        self._prices = prices
        self._corrected: dict[str, ModelFacts] = {}

    def facts(self, model: str) -> ModelFacts:
        return self._corrected.get(model) or facts_of(model)

    async def learn(self, entries: Iterable[dict[str, Any]]) -> list[ModelInfo]:
        """Take the vendor's list, and return the models to offer: all, or the latest of each family."""
        names: dict[str, str] = {}
        for entry in entries:
            model = str(entry["id"])
            names[model] = str(entry.get("display_name") or model)
            self._corrected[model] = facts_of(model).corrected(entry)
        offered = sorted(names, reverse=True)
        if self._settings.filtered:
            latest: dict[str, str] = {}
            for model in offered:
                latest.setdefault(self.facts(model).family, model)
            offered = list(latest.values())
        infos = [await self._info(model, names[model]) for model in offered]
        return sorted(infos, key=lambda info: info.display_name.lower())

    async def _info(self, model: str, display_name: str) -> ModelInfo:
        facts = self.facts(model)
        return ModelInfo(
            id=model,
            display_name=display_name,
            context_window=facts.window(enable_1m_context=self._settings.enable_1m_context),
            max_output_tokens=facts.max_output_tokens,
            capabilities=facts.capabilities,
            defaults={"temperature": 0.7, "max_tokens": facts.max_output_tokens},
            pricing=await self._pricing(model),
        )

    async def _pricing(self, model: str) -> Pricing | None:
        """Return what a million tokens of each kind cost, None when no price is known."""
        n = _SAMPLE_TOKENS
        samples = {
            "input": TokenCounts(n, 0),
            "output": TokenCounts(0, n),
            "cache_read": TokenCounts(n, 0, cache_read_tokens=n),
            "cache_write": TokenCounts(n, 0, cache_write_tokens=n),
        }
        costs = {kind: await self._prices.cost_of(model, counts) for kind, counts in samples.items()}
        if any(cost is None for cost in costs.values()):
            return None
        return Pricing.model_validate(
            {f"{kind}_per_million": cost * 1_000_000 / n for kind, cost in costs.items() if cost is not None}
        )
