"""Which provider and model a child session should use, in the order of preference."""

from dataclasses import dataclass, field
from typing import Any

from amplifier_kit.tools.input import ToolFailure


@dataclass(frozen=True)
class ProviderPreference:
    """One choice: a provider, a model (or a pattern for it), and configuration for that provider."""

    provider: str
    model: str
    config: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the preference as a mount plan has it."""
        chosen: dict[str, Any] = {"provider": self.provider, "model": self.model}
        return {**chosen, "config": dict(self.config)} if self.config else chosen


def read_preferences(given: list[Any] | None) -> list[ProviderPreference] | None:
    """Return the preferences of a call, None when it has none; raises `ToolFailure`."""
    return [_read(index, item) for index, item in enumerate(given)] if given else None


def _read(index: int, item: Any) -> ProviderPreference:
    if not isinstance(item, dict):
        raise _invalid(index, "must be an object with 'provider' and 'model'")
    for key in ("provider", "model"):
        if not isinstance(item.get(key), str) or not item[key].strip():
            raise _invalid(index, f"needs a non-empty string as its {key!r}")
    config = item.get("config")
    if config is not None and not isinstance(config, dict):
        raise _invalid(index, f"has a 'config' that is not an object but of type {type(config).__name__}")
    return ProviderPreference(item["provider"], item["model"], dict(config or {}))


def _invalid(index: int, problem: str) -> ToolFailure:
    return ToolFailure(f"task: 'provider_preferences' [{index}] {problem}", "invalid_input")
