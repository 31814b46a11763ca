"""The provider itself: one call, from the request to the response."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from amplifier_core import ChatRequest, ModelInfo, ProviderInfo
from amplifier_core.models import ConfigField, Pricing
from amplifier_kit.providers.cost import Prices, TokenCounts
from amplifier_kit.providers.options import OptionDefaults, read_options
from amplifier_kit.providers.settings import access_fields
from amplifier_kit.providers.tool_sequence import ToolSequence
from amplifier_kit.providers.vendor import VendorProvider, import_sdk

from .request_body import RequestBuilder
from .response import AnthropicChatResponse, Received, build_response, token_counts
from .settings import EFFORT_LEVELS, MODULE_ID, AnthropicSettings, ModelFacts, facts_of
from .transport import PACKAGE, Attempts, Errors, Transport, build_client


class AnthropicProvider(VendorProvider[AnthropicSettings]):
    """Claude models through Anthropic's Messages API. Without a key the first call raises `ConfigurationError`."""

    name = "anthropic"

    def __init__(
        self,
        api_key: str | None = None,
        config: Mapping[str, Any] | None = None,
        coordinator: Any = None,
        add_cost: Callable[[Decimal | None], None] | None = None,
    ) -> None:
        settings = AnthropicSettings.read(config, api_key=api_key, is_anthropic=self.name == AnthropicProvider.name)
        priced_as = {"provider_id": "anthropic"}
        super().__init__(settings, config, coordinator=coordinator, add_cost=add_cost, priced_as=priced_as)
        self._sequence = ToolSequence(self.name, self._events)
        self._catalog = Catalog(settings, self._prices)
        self._builder = RequestBuilder(settings)
        errors = Errors(self.name, settings, get_key=lambda: self._api_key)
        self._transport = Transport(self.name, settings, self._events, errors, self.ready_client)
        self._attempts = Attempts(self.name, self._transport, self._events, self._gate, self._count_cost)

    def build_client(self) -> Any:
        """Return a new client."""
        return build_client(import_sdk(PACKAGE, MODULE_ID, self.name), self._settings, self._api_key)

    def get_info(self) -> ProviderInfo:
        """Describe the provider; needs neither a key nor the network."""
        settings, facts = self._settings, self._catalog.facts(self.default_model)
        return ProviderInfo(
            id="anthropic",
            display_name="Anthropic",
            credential_env_vars=[settings.vendor.key_variable],
            capabilities=facts.capabilities,
            defaults={
                "model": self.default_model,
                "max_tokens": 4096,
                "temperature": 0.7,
                "timeout": 600.0,
                "context_window": facts.window(enable_1m_context=settings.enable_1m_context),
                "max_output_tokens": facts.max_output_tokens,
            },
            config_fields=[*access_fields(settings.vendor, "Anthropic"), *_model_fields()],
        )

    async def list_models(self) -> list[ModelInfo]:
        """Ask the vendor for its models; raises what a failed call raises."""
        call = self.begin_call(self.default_model)
        timeout_s = self._settings.timeout_s
        entries = await call.attempt(lambda: self._transport.list_models(timeout_s), self._settings.retry)
        return await self._catalog.learn(entries)

    async def complete(self, request: ChatRequest, **kwargs: Any) -> AnthropicChatResponse:
        """Answer a request; unknown keywords are ignored.

        Tool calls without a result get one in `request.messages`. Raises errors of `amplifier_core.llm_errors`.
        """
        settings = self._settings
        options = read_options(request, kwargs, self._defaults())
        async with self.begin_call(options.model) as call:
            messages = self._sequence.arrange(await self._sequence.repair(request))
            wire = self._builder.build(request, messages, options, kwargs, self._catalog.facts(options.model))
            raw = (lambda: wire.body) if settings.raw else None
            await call.announce(len(wire.body["messages"]), raw=raw, **wire.facts)
            answers = await self._attempts.answers(wire, call, settings.retry, options.timeout_s)
            response = build_response(
                answers, shows_updates=wire.thinking.shows_updates, degradation=wire.shortfalls.degradation
            )
            raw = (lambda: answers[-1].message) if settings.raw else None
            await call.finish(response, raw=raw, rate_limits=answers[-1].rate_limits)
        return response

    def _defaults(self) -> OptionDefaults:
        settings = self._settings
        return OptionDefaults(
            model=self.default_model,
            max_output_tokens=settings.max_tokens,
            temperature=settings.temperature,
            reasoning=settings.reasoning_effort,
            timeout_s=settings.timeout_s,
            use_streaming=settings.use_streaming,
        )

    async def _count_cost(self, received: Received) -> None:
        if not received.usage:
            return
        received.cost = await self._prices.cost_of(received.model, token_counts(received.usage))
        self._add_cost(received.cost)


def _model_fields() -> list[ConfigField]:
    """Return what an application asks about the use of the models."""
    return [
        ConfigField(
            id="enable_1m_context",
            display_name="1M context",
            prompt="Use the context window of one million tokens?",
            field_type="boolean",
            default="false",
            requires_model=True,
            show_when={"default_model": "not_contains:haiku"},
        ),
        ConfigField(
            id="reasoning_effort",
            display_name="Reasoning effort",
            prompt="How hard should the model think?",
            field_type="choice",
            choices=list(EFFORT_LEVELS),
            required=False,
            requires_model=True,
            show_when={"default_model": "not_contains:haiku-3"},
        ),
        ConfigField(
            id="cache_stable_region_ttl_1h",
            display_name="Cache for an hour",
            prompt="Keep system text and tools cached for an hour instead of five minutes?",
            field_type="boolean",
            required=False,
        ),
    ]


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
