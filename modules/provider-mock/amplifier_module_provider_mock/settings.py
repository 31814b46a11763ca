"""The configuration of provider-mock."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.lenient_config import LenientConfig
from amplifier_kit.providers.call import read_raw
from amplifier_kit.providers.retry import read_retry_config

from .entries import Entry
from .faults import Fault
from .keyword_rule import KeywordRule
from .script import ON_EXHAUSTED
from .usage import UsagePolicy

MODULE_ID = "provider-mock"

DEFAULT_RESPONSES = (
    "This is a canned answer of the mock provider.",
    "The mock provider answers without a model.",
    "Every third answer of the mock provider is this one.",
)
_MODES = ("canned", "echo", "scripted", "agent")
_SOURCES = ("record", "replay", "script")


@dataclass(frozen=True, slots=True)
class MockSettings:
    """Every key, read and checked; what does not fit is reported and replaced by the default."""

    responses: list[Any]
    entries: list[Entry]
    mode: str
    echo_prefix: str
    script: Any
    on_exhausted: str
    faults: list[Fault]
    keyword_rule: KeywordRule | None
    usage: UsagePolicy
    record: str | None
    provider: str | None
    replay: str | None
    model: str
    context_window: int
    max_output_tokens: int
    use_streaming: bool
    stream_delay_ms: float
    latency_ms: float
    raw: bool
    seed: int
    priority: int
    retry: RetryConfig

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "MockSettings":
        """Read the configuration; a recording without its provider or beside another source is a `ValueError`."""
        config = LenientConfig(MODULE_ID, given)
        responses, entries = _read_responses(config)
        mode = config.choice("mode", "canned", _MODES)
        script = _read_script(config)
        is_rule_off = mode == "agent" or (isinstance(given, Mapping) and given.get("tool_trigger", given) is None)
        settings = cls(
            responses=responses,
            entries=entries,
            mode="scripted" if script is not None else mode,
            echo_prefix=config.text("echo_prefix", ""),
            script=script,
            on_exhausted=config.choice("on_exhausted", "canned", ON_EXHAUSTED),
            faults=_read_faults(config),
            keyword_rule=KeywordRule.read(config, is_off=is_rule_off),
            usage=UsagePolicy(config),
            record=config.text("record", None),
            provider=config.text("provider", None),
            replay=config.text("replay", None),
            model=config.text("default_model", "mock-model", aliases=("model",)),
            context_window=config.integer("context_window", 100_000, minimum=1),
            max_output_tokens=config.integer("max_output_tokens", 4096, minimum=1),
            use_streaming=config.boolean("use_streaming", default=True),
            stream_delay_ms=config.number("stream_delay_ms", 0.0, minimum=0),
            latency_ms=config.number("latency_ms", 0.0, minimum=0),
            raw=read_raw(config),
            seed=config.integer("seed", 0),
            priority=config.integer("priority", 100),
            retry=read_retry_config(config, max_retries=0, min_delay_s=0.0, jitter=False),
        )
        config.warn_unknown()
        settings._check_sources()
        return settings

    def _check_sources(self) -> None:
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{MODULE_ID}: only one of {', '.join(_SOURCES)} can be set, got {' and '.join(given)}")
        if self.record is not None and self.provider is None:
            raise ValueError(f"{MODULE_ID}: 'record' needs 'provider', the name of the provider to record")


def _read_responses(config: LenientConfig) -> tuple[list[Any], list[Entry]]:
    """Return the canned answers as they were given, and read."""
    responses = config.items("responses", DEFAULT_RESPONSES) or list(DEFAULT_RESPONSES)
    try:
        return responses, [Entry.parse(item) for item in responses]
    except (TypeError, ValueError) as exc:
        config.refuse("responses", responses, f"texts and answers ({exc})", DEFAULT_RESPONSES)
        return list(DEFAULT_RESPONSES), [Entry.parse(item) for item in DEFAULT_RESPONSES]


def _read_script(config: LenientConfig) -> Any:
    script = config.raw("script")
    if script is None or isinstance(script, str | list):
        return script
    return config.refuse("script", script, "a list of steps or the path of a file", None)


def _read_faults(config: LenientConfig) -> list[Fault]:
    faults = []
    for item in config.items("errors", ()):
        try:
            faults.append(Fault.parse(item))
        except (TypeError, ValueError) as exc:
            config.refuse("errors", item, f"faults ({exc})", None)
    return faults
