"""What the mock is told to answer: an entry of `responses` or a step of a script, and the response it becomes."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from amplifier_core import Usage
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_kit.providers.response import ProviderResponse

from .faults import ErrorSpec

_TYPES: dict[str, type | tuple[type, ...]] = {
    "thinking": str,
    "signature": str,
    "text": str,
    "tool_calls": list,
    "finish_reason": str,
    "usage": Mapping,
    "error": (str, Mapping),
    "latency_ms": (int, float),
    "metadata": Mapping,
}


@dataclass(frozen=True, slots=True)
class EntryCall:
    """A tool call to make; without an id it gets one from the number of the call it answers."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str | None = None

    @classmethod
    def parse(cls, given: Any) -> "EntryCall":
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            raise TypeError(f"a tool call is a mapping with a name, got {given!r}")
        arguments, call_id = given.get("arguments", {}), given.get("id")
        if not isinstance(arguments, Mapping):
            raise TypeError(f"the arguments of a tool call are a mapping, got {arguments!r}")
        if unknown := sorted(set(given) - {"name", "arguments", "id"}):
            raise ValueError(f"a tool call has no {', '.join(map(repr, unknown))}")
        return cls(given["name"], dict(arguments), None if call_id is None else str(call_id))


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer. `streams` says whether it may be streamed."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    tool_calls: tuple[EntryCall, ...] = ()
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    error: ErrorSpec | None = None
    latency_ms: float = 0.0
    metadata: Mapping[str, Any] | None = None
    streams: bool = True

    @classmethod
    def parse(cls, given: Any) -> "Entry":
        """Read a string, which is a text, or a mapping; raises `TypeError` or `ValueError`."""
        if isinstance(given, str):
            return cls(text=given)
        if not isinstance(given, Mapping):
            raise TypeError(f"an answer is a text or a mapping, got {given!r}")
        fields = {key: value for key, value in given.items() if value is not None}
        for key, value in fields.items():
            if key not in _TYPES:
                raise ValueError(f"an answer has no {key!r}")
            if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
                raise TypeError(f"{key!r} of an answer does not fit: {value!r}")
        if "tool_calls" in fields:
            fields["tool_calls"] = tuple(EntryCall.parse(call) for call in fields["tool_calls"])
        if "error" in fields:
            fields["error"] = ErrorSpec.parse(fields["error"])
        if "usage" in fields:
            read_usage(fields["usage"])
        return cls(**fields)

    def with_texts(self, change: Callable[[str], str]) -> "Entry":
        """Return the entry with its text and its thinking changed."""
        return replace(
            self,
            text=None if self.text is None else change(self.text),
            thinking=None if self.thinking is None else change(self.thinking),
        )

    def response(self, call_number: int, usage: Usage) -> ProviderResponse:
        """Return the response; `usage` is what counts unless the entry has its own."""
        content: list[Any] = []
        if self.thinking is not None:
            content.append(ThinkingBlock(thinking=self.thinking, signature=self.signature))
        if self.text is not None:
            content.append(TextBlock(text=self.text))
        for index, call in enumerate(self.tool_calls):
            call_id = call.id or f"call_mock_{call_number}_{index}"
            content.append(ToolCallBlock(id=call_id, name=call.name, input=deepcopy(call.arguments)))
        return ProviderResponse.of(
            content,
            usage=usage.model_copy() if self.usage is None else read_usage(self.usage),
            finish_reason=self.finish_reason or ("tool_calls" if self.tool_calls else "stop"),
            metadata=None if self.metadata is None else deepcopy(dict(self.metadata)),
        )


def read_usage(given: Mapping[str, Any]) -> Usage:
    """Return a mapping as usage; what is left out is 0, the total is the sum; raises `TypeError` or `ValueError`."""
    counts = {"input_tokens": 0, "output_tokens": 0, **given}
    if isinstance(counts.get("cost_usd"), int | float):
        counts["cost_usd"] = str(counts["cost_usd"])
    usage = Usage(**{"total_tokens": 0, **counts})
    if "total_tokens" in given:
        return usage
    return usage.model_copy(update={"total_tokens": usage.input_tokens + usage.output_tokens})
