"""The configuration of provider-openai."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

from amplifier_kit.config import LenientConfig
from amplifier_kit.providers.cost import ModelTable
from amplifier_kit.providers.settings import Vendor, VendorSettings, read_shared

MODULE_ID = "provider-openai"
DEFAULT_BASE_URL = "https://api.openai.com/v1"
NO_KEY = "not-needed"  # for servers that ask for none; the vendor's client insists on one

Chaining = Literal["auto", "true", "false"]

_DEFAULT_HOST = "api.openai.com"
_SUMMARIES = ("auto", "concise", "detailed")
_RETENTIONS = ("24h", "in_memory")
_VERBOSITIES = ("low", "medium", "high")
_CHAINING_WORDS: dict[str, Chaining] = {
    "auto": "auto",
    **dict.fromkeys(("true", "1", "yes", "on"), "true"),
    **dict.fromkeys(("false", "0", "no", "off"), "false"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings(VendorSettings):
    """Every key, read and checked; what does not fit is reported and replaced by the default."""

    max_tokens: int
    temperature: float | None
    top_p: float | None
    reasoning: str | dict[str, Any] | None
    reasoning_summary: str
    truncation: str | None
    enable_state: bool
    enable_response_chaining: Chaining
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    safety_identifier: str | None
    filtered: bool
    thinking_budget_tokens: int
    thinking_budget_buffer: int
    enable_long_context: bool
    extra_request_params: dict[str, Any]
    text_verbosity: str | None
    api: str
    stop: list[str] | None
    seed: int | None
    parallel_tool_calls: bool
    context_window: int | None
    model_max_output_tokens: int | None
    headers: dict[str, str] = field(repr=False)
    parse_think_tags: bool

    @classmethod
    def read(
        cls, given: Mapping[str, Any] | None, *, api_key: str | None = None, is_openai: bool = True
    ) -> "OpenAISettings":
        """Read the configuration; `api_key` wins over its key, and both over the environment.

        A provider that is not OpenAI's gets neither OpenAI's key from the environment nor its address.
        """
        config = LenientConfig(MODULE_ID, given)
        settings = cls(
            **read_shared(config, _vendor() if is_openai else _vendor().without_defaults(), api_key=api_key),
            max_tokens=config.integer("max_tokens", 4096, minimum=1, aliases=("max_output_tokens",)),
            temperature=config.number("temperature", None, minimum=0),
            top_p=config.number("top_p", None, minimum=0, maximum=1),
            reasoning=_read_reasoning(config),
            reasoning_summary=config.choice("reasoning_summary", "detailed", _SUMMARIES),
            truncation=config.text("truncation", None),
            enable_state=config.boolean("enable_state", default=False),
            enable_response_chaining=_read_chaining(config),
            prompt_cache_key=config.text("prompt_cache_key", None),
            prompt_cache_retention=_read_optional_choice(
                config, "prompt_cache_retention", config.raw("prompt_cache_retention"), _RETENTIONS
            ),
            safety_identifier=config.text("safety_identifier", None),
            filtered=config.boolean("filtered", config.boolean("hide_dated_models", default=True)),
            thinking_budget_tokens=config.integer("thinking_budget_tokens", 0, minimum=0),
            thinking_budget_buffer=config.integer("thinking_budget_buffer", 1024, minimum=0),
            enable_long_context=config.boolean("enable_long_context", default=False),
            extra_request_params=config.mapping("extra_request_params", {}),
            text_verbosity=_read_optional_choice(config, "text_verbosity", config.raw("text_verbosity"), _VERBOSITIES),
            api=config.choice("api", "auto", ("auto", "responses", "chat")),
            stop=config.strings("stop", None),
            seed=config.integer("seed", None),
            parallel_tool_calls=config.boolean("parallel_tool_calls", default=True),
            context_window=config.integer("context_window", None, minimum=1),
            model_max_output_tokens=config.integer("model_max_output_tokens", None, minimum=1),
            headers={str(name): str(value) for name, value in config.mapping("headers", {}).items()},
            parse_think_tags=config.boolean("parse_think_tags", default=True),
        )
        config.warn_unknown()
        return settings

    @property
    def is_default_host(self) -> bool:
        """True if requests go to OpenAI itself, or, where no address is known, to a client that speaks as it does."""
        return self.host == _DEFAULT_HOST or not self.base_url

    @property
    def needs_key(self) -> bool:
        """True if the server answers only those who have a key, as OpenAI itself does."""
        return self.is_default_host


def _vendor() -> Vendor:
    """Return what is known of OpenAI; while its models think, and servers of local models read, nothing is sent."""
    own = (MODULE_ID, "OPENAI_API_KEY", "OPENAI_BASE_URL", DEFAULT_BASE_URL, default_model())
    return Vendor(*own, first_byte_s=300.0, silence_s=300.0)


def _read_reasoning(config: LenientConfig) -> str | dict[str, Any] | None:
    """Return the reasoning to ask for by default: `reasoning_effort`, else the older key `reasoning`."""
    effort, older = config.text("reasoning_effort", None), config.raw("reasoning")
    if effort is not None:
        return None if effort == "none" else effort
    if older is None or isinstance(older, str):
        return None if older == "none" else older
    if isinstance(older, Mapping):
        return dict(older)
    return config.refuse("reasoning", older, "an effort or a mapping", None)


def _read_chaining(config: LenientConfig) -> Chaining:
    given = config.raw("enable_response_chaining")
    if given is None:
        return "false"
    chaining = parse_chaining(given)
    if chaining is None:
        config.refuse("enable_response_chaining", given, "auto, true or false", "false")
    return chaining or "false"


def parse_chaining(given: Any) -> Chaining | None:
    """Return what a value says about chaining, None when it says nothing that can be understood."""
    return _CHAINING_WORDS.get(str(given).strip().lower())


def _read_optional_choice(config: LenientConfig, key: str, given: Any, choices: tuple[str, ...]) -> str | None:
    if given is None or given == "null":
        return None
    return str(given) if given in choices else config.refuse(key, given, " or ".join(choices), None)


# What is known about a model by its id: the rows of `models.json`.


_TABLE = ModelTable(__package__)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One row; `reasoning_efforts` are those a model accepts, None when it takes any."""

    family: str
    context_window: int
    max_output_tokens: int
    supports_reasoning: bool
    default_reasoning_effort: str | None
    reasoning_efforts: tuple[str, ...] | None
    supports_vision: bool
    supports_streaming: bool
    capability_tags: tuple[str, ...]
    long_context_pricing_threshold: int | None
    supports_in_memory_retention: bool
    supports_24h_retention: bool

    def rejects_retention(self, retention: str) -> bool:
        """True if the model refuses to keep cached prompts that way."""
        return not (self.supports_24h_retention if retention == "24h" else self.supports_in_memory_retention)

    def reported_window(self, *, enable_long_context: bool) -> int:
        """Return the window up to which a token costs the same, or the whole one when it is enabled."""
        threshold = self.long_context_pricing_threshold
        return self.context_window if enable_long_context or threshold is None else threshold


@cache
def facts_of(model: str) -> ModelFacts:
    """Return the row for a model id; every id has one."""
    row = _TABLE.row(model)
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(ModelFacts)}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return ModelFacts(**values)


def default_model() -> str:
    """Return the model that is used if none is named."""
    return _TABLE.default_model


def display_name(model: str) -> str:
    """Return the name a person is shown."""
    known: dict[str, str] = _TABLE.data["display_names"]
    if model in known:
        return known[model]
    return f"GPT-{model.removeprefix('gpt-')}" if model.startswith("gpt-") else model
