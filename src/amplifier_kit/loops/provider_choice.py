"""Choosing among the mounted providers."""

import logging
from collections.abc import Mapping

from amplifier_core import Provider
from amplifier_core.packages import provider_module_id, provider_name

logger = logging.getLogger(__name__)

_DEFAULT_PRIORITY = 100.0


def by_preference(
    providers: Mapping[str, Provider], preferred: str | None, *, rank: bool = True
) -> list[tuple[str, Provider]]:
    """Return name and provider of all that are mounted: the preferred one first, then by priority number.

    Without `rank` the rest keeps the order in which it was mounted.
    """
    ordered = list(providers.items())
    if rank and len(ordered) > 1:
        ordered.sort(key=lambda item: priority_of(item[1]))
    if preferred:
        chosen = next((name for name in _spellings(preferred) if name in providers), None)
        if chosen is None:
            logger.warning("no provider %r is mounted (mounted: %s)", preferred, ", ".join(providers) or "none")
        else:
            ordered.sort(key=lambda item: item[0] != chosen)
    return ordered


def priority_of(provider: Provider) -> float:
    """Return a provider's priority number; lower comes first."""
    priority = getattr(provider, "priority", None)
    if priority is None:
        config = getattr(provider, "config", None)
        priority = config.get("priority") if isinstance(config, Mapping) else None
    if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
        return _DEFAULT_PRIORITY
    return float(priority)


def model_of(provider: Provider) -> str | None:
    """Return the model a provider is set to, as far as it says so."""
    config = getattr(provider, "config", None)
    candidates = [getattr(provider, name, None) for name in ("default_model", "model")]
    if isinstance(config, Mapping):
        candidates += [config.get("default_model"), config.get("model")]
    return next((model for model in candidates if isinstance(model, str) and model), None)


def _spellings(name: str) -> tuple[str, ...]:
    return (name, provider_name(name), provider_module_id(name))
