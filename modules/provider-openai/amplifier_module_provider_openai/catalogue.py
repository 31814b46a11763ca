"""What the provider says about itself, and about the models of its server."""

import re
from collections.abc import Mapping
from typing import Any

from amplifier_core import ModelInfo, ProviderInfo
from amplifier_core.models import ConfigField
from amplifier_kit.providers.settings import access_fields

from .model_facts import display_name, facts_of
from .settings import OpenAISettings

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
