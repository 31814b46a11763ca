"""The provider itself: which API a call goes through, and what it says about itself and its models."""

import logging
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from amplifier_core import ChatRequest, ChatResponse, LLMError, ModelInfo, ProviderInfo
from amplifier_core.models import ConfigField
from amplifier_kit.providers.options import OptionDefaults, Shortfalls, WarnOnce, read_options
from amplifier_kit.providers.response import ProviderResponse
from amplifier_kit.providers.settings import access_fields
from amplifier_kit.providers.tool_sequence import ToolSequence
from amplifier_kit.providers.vendor import VendorProvider, import_sdk

from .chat_api import ChatApi
from .pending_request import PendingRequest, thinking_budget
from .responses_api import ResponsesApi, answer_of
from .sender import CompleteAnswer, Link
from .settings import MODULE_ID, OpenAISettings, display_name, facts_of
from .transport import OpenAIErrors, Transport, build_client

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

API_SELECTED = "provider:api_selected"


class OpenAIChatResponse(ProviderResponse):
    """The response of this provider; `output_text` is all of its text."""

    output_text: str | None = None


class OpenAIProvider(VendorProvider[OpenAISettings]):
    """Answers with OpenAI's models, or with those of any server that speaks one of OpenAI's two APIs.

    Without a key a call to OpenAI itself raises `ConfigurationError`; other servers are asked without one.

    Providers of other modules derive from this class: beside what `VendorProvider` offers them, `api_label` and
    `_convert_to_chat_response`, which makes every response, may be overridden. One with a name of its own is for a
    server of its own: OpenAI's address and key are not its defaults. It brings a client, or `base_url` and `api_key`.
    """

    name = "openai"
    api_label = "OpenAI"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        coordinator: Any = None,
        client: Any = None,
        add_cost: Callable[[Decimal | None], None] | None = None,
    ) -> None:
        settings = OpenAISettings.read(config, api_key=api_key, is_openai=self.name == OpenAIProvider.name)
        priced_as = {"provider_id": "openai"} if settings.is_default_host else {"provider_api_url": settings.base_url}
        super().__init__(settings, config, coordinator=coordinator, add_cost=add_cost, priced_as=priced_as)
        if client is not None:
            self._slot.put(client)
        self.use_streaming = settings.use_streaming
        self._sequence = ToolSequence(self.name, self._events, closes_turn=True)
        errors = OpenAIErrors(self.name, settings, get_key=lambda: self._api_key)
        self._transport = Transport(self.ready_client, errors, settings.limits)
        self._link = Link(
            provider=self.name,
            settings=settings,
            transport=self._transport,
            errors=errors,
            events=self._events,
            gate=self._gate,
            prices=self._prices,
            warn=WarnOnce(MODULE_ID),
            add_cost=self._add_cost,
        )
        self._responses = ResponsesApi(self._link)
        self._chat = ChatApi(self._link)
        self._api: ResponsesApi | ChatApi = self._chat if settings.api == "chat" else self._responses
        self._is_probing = settings.api == "auto" and not settings.is_default_host
        self._responses.probe(self._is_probing)

    def get_info(self) -> ProviderInfo:
        """Describe the provider and its configuration."""
        return provider_info(self.name, self.api_label, self._settings)

    async def list_models(self) -> list[ModelInfo]:
        """Ask the server for its models."""
        settings, model = self._settings, self.default_model
        call = self.begin_call(model)
        await self._transport.prepare(model=model)
        listed = await call.attempt(
            lambda: self._transport.fetch("/models", model=model),
            settings.retry,
            timeout_s=settings.timeout_s,
            gate=self._gate,
        )
        return models_from(listed, settings)

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Answer a request; unknown keywords are ignored."""
        settings = self._settings
        options = read_options(request, kwargs, self._defaults())
        async with self.begin_call(options.model) as call:
            given_count = len(request.messages)
            stored = await self._sequence.repair(request)
            asked = PendingRequest(
                call=call,
                request=request,
                given=kwargs,
                options=options,
                facts=facts_of(options.model),
                stored=stored,
                messages=self._sequence.arrange(stored),
                is_repaired=len(request.messages) != given_count,
                shortfalls=Shortfalls(self._link.warn),
            )
            answer = await self._ask(asked)
            response = self._convert_to_chat_response(answer)
            response.degradation = asked.shortfalls.degradation
            self._add_cost(answer.usage.cost_usd)
            await call.finish(response, raw=(lambda: answer.raw) if settings.raw else None, **answer.facts)
        return response

    def build_client(self) -> "AsyncOpenAI":
        """Return a new client."""
        return build_client(import_sdk("openai", MODULE_ID, self.name), self._settings, self._api_key)

    def _convert_to_chat_response(self, response: Any) -> OpenAIChatResponse:
        """Return the response to a call.

        `complete` gives the `CompleteAnswer` to a call, through either API; a response object of the Responses API, the
        vendor's own or one in the same form, is converted too, without its cost.
        """
        answer = response if isinstance(response, CompleteAnswer) else answer_of(response)
        return OpenAIChatResponse.of(
            answer.content,
            usage=answer.usage,
            finish_reason=answer.finish_reason,
            metadata=answer.metadata or None,
            **answer.fields,
        )

    async def _ask(self, asked: PendingRequest) -> CompleteAnswer:
        """Send a call through the API that the server has, which the first call finds out."""
        api, is_probing = self._api, self._is_probing
        prepared = api.build(asked)
        await self._announce(asked, prepared.body, api.name)
        await self._transport.prepare(model=asked.options.model)
        try:
            answer = await api.complete(asked, prepared)
        except LLMError as error:
            if not is_probing or not self._responses.is_missing(error):
                raise
            await self._switch_to_chat()
            return await self._chat.complete(asked, self._chat.build(asked))
        if is_probing:
            self._end_probing()
        return answer

    async def _announce(self, asked: PendingRequest, body: dict[str, Any], api: str) -> None:
        await asked.call.announce(
            len(asked.request.messages),
            raw=(lambda: body) if self._settings.raw else None,
            has_instructions=any(message.role == "system" for message in asked.stored),
            reasoning_enabled=bool(body.get("reasoning") or body.get("reasoning_effort")),
            thinking_enabled=bool(asked.given.get("extended_thinking")),
            thinking_budget=thinking_budget(asked, self._settings),
            api=api,
        )

    async def _switch_to_chat(self) -> None:
        if self._api is self._chat:  # a call at the same time has found out first
            return
        self._end_probing()
        self._api = self._chat
        host = self._settings.host
        logger.info("%s: %s has no Responses API; Chat Completions is used", self.name, host)
        payload = {"provider": self.name, "base_url_host": host, "api": self._chat.name}
        await self._events.emit(API_SELECTED, payload)

    def _end_probing(self) -> None:
        self._is_probing = False
        self._responses.probe(False)

    def _defaults(self) -> OptionDefaults:
        settings = self._settings
        return OptionDefaults(
            model=self.default_model,
            max_output_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            stop=settings.stop,
            reasoning=settings.reasoning,
            timeout_s=settings.timeout_s,
            use_streaming=self.use_streaming,
        )


# What the provider says about itself, and about the models of its server.


_CAPABILITIES = ["streaming", "tools", "reasoning", "batch", "json_mode", "thinking"]
_LOCAL_CAPABILITIES = ["tools", "streaming", "json_mode", "local"]
_ANSWER_TOKENS = 16384
_OFFERED = ("gpt-5", "gpt-6")
_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_WINDOW_KEYS = ("context_window", "max_model_len", "context_length")


def provider_info(provider_id: str, name: str, settings: OpenAISettings) -> ProviderInfo:
    """Describe the provider, without asking the vendor."""
    facts = facts_of(settings.default_model)
    window = facts.reported_window(enable_long_context=settings.enable_long_context)
    return ProviderInfo(
        id=provider_id,
        display_name=name,
        credential_env_vars=[settings.vendor.key_variable],
        capabilities=list(_CAPABILITIES),
        defaults={
            "model": settings.default_model,
            "max_tokens": _ANSWER_TOKENS,
            "temperature": None,
            "timeout": 600.0,
            "context_window": settings.context_window or window,
            "max_output_tokens": settings.model_max_output_tokens or facts.max_output_tokens,
        },
        config_fields=[*access_fields(settings.vendor, "OpenAI"), *_model_fields()],
    )


def models_from(listed: Any, settings: OpenAISettings) -> list[ModelInfo]:
    """Return the models of a server's list, by name; of OpenAI's those that this provider is made for."""
    entries = listed.get("data") if isinstance(listed, Mapping) else listed
    known = [entry for entry in entries or () if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)]
    describe = _describe_local
    if settings.is_default_host:
        known = [entry for entry in known if entry["id"].startswith(_OFFERED)]
        known = [entry for entry in known if not (settings.filtered and _DATED.search(entry["id"]))]
        describe = _describe
    return sorted((describe(entry, settings) for entry in known), key=lambda model: model.display_name.lower())


def _describe(entry: Mapping[str, Any], settings: OpenAISettings) -> ModelInfo:
    facts = facts_of(entry["id"])
    window = facts.reported_window(enable_long_context=settings.enable_long_context)
    return _model(
        entry["id"],
        settings.context_window or window,
        settings.model_max_output_tokens or facts.max_output_tokens,
        list(facts.capability_tags),
    )


def _describe_local(entry: Mapping[str, Any], settings: OpenAISettings) -> ModelInfo:
    meta = entry.get("meta")
    windows = [entry.get(key) for key in _WINDOW_KEYS]
    windows.append(meta.get("n_ctx_train") if isinstance(meta, Mapping) else None)
    window = next(
        (window for window in windows if isinstance(window, int) and window > 0), settings.context_window or 0
    )
    facts = facts_of(entry["id"])
    return _model(
        entry["id"], window, settings.model_max_output_tokens or facts.max_output_tokens, list(_LOCAL_CAPABILITIES)
    )


def _model(model: str, window: int, max_output_tokens: int, capabilities: list[str]) -> ModelInfo:
    return ModelInfo(
        id=model,
        display_name=display_name(model),
        context_window=window,
        max_output_tokens=max_output_tokens,
        capabilities=capabilities,
        defaults={"max_tokens": _ANSWER_TOKENS, "reasoning_effort": "none"},
    )


def _model_fields() -> list[ConfigField]:
    return [
        ConfigField(
            id="reasoning_effort",
            display_name="Reasoning effort",
            prompt="How much should the model reason?",
            field_type="choice",
            choices=["none", "low", "medium", "high", "xhigh"],
            required=False,
            default="none",
            requires_model=True,
        ),
        ConfigField(
            id="enable_long_context",
            display_name="Long context",
            prompt="Use the whole context window, even where its tokens cost more?",
            field_type="boolean",
            required=False,
            default="false",
        ),
        ConfigField(
            id="prompt_cache_key",
            display_name="Prompt cache key",
            prompt="Name under which prompts are cached, if any",
            required=False,
            default="",
        ),
        ConfigField(
            id="prompt_cache_retention",
            display_name="Prompt cache retention",
            prompt="How long should cached prompts be kept?",
            field_type="choice",
            choices=["in_memory", "24h"],
            required=False,
        ),
        ConfigField(
            id="enable_response_chaining",
            display_name="Response chaining",
            prompt="Let OpenAI store the conversation, so that only what is new is sent?",
            field_type="choice",
            choices=["auto", "true", "false"],
            required=False,
            default="false",
        ),
    ]
