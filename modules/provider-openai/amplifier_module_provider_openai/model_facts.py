"""What is known about a model by its id: the rows of `models.json`."""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from amplifier_kit.providers.models import ModelTable

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
        """Say whether the model refuses to keep cached prompts that way."""
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
