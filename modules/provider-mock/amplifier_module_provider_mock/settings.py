"""The configuration of provider-mock."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatRequest, Usage
from amplifier_core.utils import json_safe
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.config import LenientConfig
from amplifier_kit.providers.call import read_raw
from amplifier_kit.providers.errors import read_retry_config
from amplifier_kit.providers.messages import NormalMessage

from .entries import Entry, EntryCall, read_usage
from .faults import Fault, TurnView
from .script import ON_EXHAUSTED

_CALL_ID = "mock_tool_1"
_PATH = re.compile(r"[^\s`'\"]*[\w~][./][\w~./-]+|~?/[^\s`'\"]+")


@dataclass(frozen=True, slots=True)
class KeywordRule:
    """Calls `tool` when the prompt matches `pattern`."""

    pattern: re.Pattern[str] = re.compile(r"\bread\b", re.IGNORECASE)
    tool: str = "read"
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"path": "test.txt"})

    @classmethod
    def read(cls, config: LenientConfig, *, is_off: bool) -> "KeywordRule | None":
        """Read the key `tool_trigger`; what is left out of it is the default's."""
        given = config.mapping("tool_trigger", {})
        default = cls()
        if is_off:
            return None
        pattern, tool, arguments = given.get("pattern"), given.get("tool"), given.get("arguments")
        try:
            return cls(
                default.pattern if pattern is None else re.compile(pattern, re.IGNORECASE),
                default.tool if tool is None else str(tool),
                dict(default.arguments if arguments is None else arguments),
            )
        except (re.error, TypeError, ValueError):
            return config.refuse("tool_trigger", given, "a mapping of pattern, tool and arguments", default)

    def entry(self, view: TurnView) -> Entry | None:
        """Return the call, None when the rule does not apply."""
        if not view.is_first_call or not self.pattern.search(view.first_user_text):
            return None
        names = (self.tool, f"{self.tool}_file")
        name = next((name for name in names if name in view.offered), None) if view.offered else self.tool
        if name is None:
            return None
        arguments = dict(self.arguments)
        if name == "read_file":
            found = _PATH.search(view.first_user_text)
            arguments = {"file_path": found[0].rstrip(".,") if found else "test.txt"}
        call = EntryCall(name, arguments, _CALL_ID)
        usage = FIXED_CALL.model_dump(exclude_none=True)
        return Entry(text=f"I will use {name}.", tool_calls=(call,), usage=usage, streams=False)


_CHARACTERS_PER_TOKEN = 4
FIXED_TEXT = Usage(input_tokens=10, output_tokens=20, total_tokens=30)
FIXED_CALL = Usage(input_tokens=10, output_tokens=5, total_tokens=15)


class UsagePolicy:
    """Fixed numbers, an estimate from the length of what is said, or numbers of one's own."""

    def __init__(self, config: LenientConfig) -> None:
        given = config.raw("usage")
        self._is_estimate = given == "estimate"
        self._own: Usage | None = None
        if isinstance(given, Mapping):
            try:
                self._own = read_usage(given)
            except (TypeError, ValueError):
                config.refuse("usage", given, "fixed, estimate or token counts", "fixed")
        elif given not in (None, "fixed", "estimate"):
            config.refuse("usage", given, "fixed, estimate or token counts", "fixed")

    def usage(self, request: ChatRequest, messages: list[NormalMessage], entry: Entry) -> Usage:
        """Return what a call used."""
        if self._own is not None:
            return self._own
        if not self._is_estimate:
            return FIXED_CALL if entry.tool_calls else FIXED_TEXT
        tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools or []]
        taken = sum(_length(message) for message in messages) + sum(len(_json(tool)) for tool in tools)
        calls = sum(len(call.name) + len(_json(call.arguments)) for call in entry.tool_calls)
        return _counted(taken, len(entry.thinking or "") + len(entry.text or "") + calls)


def _counted(taken: int, given: int) -> Usage:
    taken, given = (-(-characters // _CHARACTERS_PER_TOKEN) for characters in (taken, given))
    return Usage(input_tokens=taken, output_tokens=given, total_tokens=taken + given)


def _length(message: NormalMessage) -> int:
    results = sum(len(result.text) for result in message.results)
    return results + sum(
        len(block["text"]) if block["type"] == "text" else len(_json(block)) for block in message.blocks
    )


def _json(value: Any) -> str:
    return json.dumps(json_safe(value), ensure_ascii=False, separators=(",", ":"))


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
