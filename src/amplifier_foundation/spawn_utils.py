"""Which provider and model a delegated session should use."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_core.packages import provider_module_id, provider_name
from amplifier_system.model_choice import ProviderPreference

__all__ = [
    "PROTECTED_CONFIG_KEYS",
    "ModelResolutionResult",
    "ProviderPreference",
    "apply_provider_preferences",
    "apply_provider_preferences_with_resolution",
    "is_glob_pattern",
    "resolve_model_pattern",
]

logger = logging.getLogger(__name__)

_NO_PRIORITY = 100

PROTECTED_CONFIG_KEYS = frozenset(
    [
        "api_key",
        "secret",
        "password",
        "token",
        "access_token",
        "bearer_token",
        "client_id",
        "client_secret",
        "tenant_id",
        "base_url",
        "host",
        "azure_endpoint",
        "api_version",
        "deployment_name",
        "organization",
        "project",
        "managed_identity_client_id",
        "use_managed_identity",
        "use_default_credential",
        "proxy",
        "http_proxy",
        "https_proxy",
        "verify_ssl",
        "ssl_verify",
        "verify",
        "ca_bundle",
    ]
)
"""Where a provider connects and as whom: a preference never changes that."""


@dataclass
class ModelResolutionResult:
    """What a model pattern stands for; the lists say what was there to choose from."""

    resolved_model: str | None
    pattern: str | None = None
    available_models: list[str] | None = None
    matched_models: list[str] | None = None


def is_glob_pattern(model_hint: str) -> bool:
    """True if a model name is a pattern: it contains `*`, `?` or `[`."""
    return any(sign in model_hint for sign in "*?[")


def apply_provider_preferences(
    mount_plan: dict[str, Any], preferences: Sequence[ProviderPreference] | None
) -> dict[str, Any]:
    """Return a plan in which the first preferred provider that is in it comes first, with the preferred model.

    Without a match the plan itself is returned. Model patterns are written as they are;
    `apply_provider_preferences_with_resolution` looks them up first.
    """
    for preference, entry in _matches(mount_plan, preferences):
        return _preferred(mount_plan, entry, preference, preference.model)
    return mount_plan


async def apply_provider_preferences_with_resolution(
    mount_plan: dict[str, Any], preferences: Sequence[ProviderPreference] | None, coordinator: Any
) -> dict[str, Any]:
    """Do the same with model patterns looked up among the models of the coordinator's providers.

    A preference whose pattern matches no model gives way to the next; a pattern is never written into the plan.
    """
    for preference, entry in _matches(mount_plan, preferences):
        resolution = await resolve_model_pattern(preference.model, preference.provider, coordinator)
        model = resolution.resolved_model
        if model is not None and not (resolution.pattern and is_glob_pattern(model)):
            return _preferred(mount_plan, entry, preference, model)
        logger.warning("No model of provider '%s' matches '%s'", preference.provider, preference.model)
    return mount_plan


async def resolve_model_pattern(model_hint: str, provider_name: str | None, coordinator: Any) -> ModelResolutionResult:
    """Return the model that a name or pattern stands for: of several matches the last in alphabetical order."""
    if not is_glob_pattern(model_hint):
        return ModelResolutionResult(model_hint)
    if not provider_name:
        return ModelResolutionResult(model_hint, model_hint)
    available = await _models_of(provider_name, coordinator)
    matched = sorted((m for m in available if fnmatch.fnmatchcase(m.lower(), model_hint.lower())), reverse=True)
    return ModelResolutionResult(matched[0] if matched else None, model_hint, available, matched)


def _matches(
    mount_plan: Mapping[str, Any], preferences: Sequence[ProviderPreference] | None
) -> Iterable[tuple[ProviderPreference, PlanEntry]]:
    """Yield each preference whose provider is in the plan, with that provider's entry."""
    if not preferences:
        return
    providers = [*MountPlan(mount_plan).entries(section="providers")]
    found = False
    for preference in preferences:
        candidates = [entry for entry in providers if preference.provider in _names_of(entry)]
        if candidates:
            found = True
            yield preference, min(candidates, key=lambda entry: _priority(entry, _NO_PRIORITY))
    if not found:
        wanted = [preference.provider for preference in preferences]
        logger.warning("None of the preferred providers %s is in the plan", wanted)


def _names_of(entry: PlanEntry) -> set[str]:
    module_id = entry.module_id
    names = {module_id, provider_name(module_id), provider_module_id(module_id), _instance_of(entry)}
    return {name for name in names if name}


def _instance_of(entry: PlanEntry) -> str | None:
    """Return the name of an instance: its `id` in a bundle, which becomes its `instance_id` in a session."""
    return entry.spec.get("id") or entry.instance_id


def _priority(entry: PlanEntry, default: int) -> Any:
    priority = entry.config.get("priority")
    return default if priority is None else priority


def _preferred(
    mount_plan: dict[str, Any], preferred: PlanEntry, preference: ProviderPreference, model: str
) -> dict[str, Any]:
    allowed = {key: value for key, value in preference.config.items() if key not in PROTECTED_CONFIG_KEYS}
    changes = {preferred.place: {**allowed, "priority": 0, "default_model": model}}

    def changed(entry: PlanEntry) -> dict[str, Any]:
        return {**entry.spec, "config": {**entry.config, **changes.get(entry.place, {})}}

    return MountPlan(mount_plan).map(changed, section="providers")


async def _models_of(name: str, coordinator: Any) -> list[str]:
    provider = _find_provider(provider_name(name), coordinator)
    if provider is None:
        return []
    models: Iterable[Any] = ()  # of a vendor that cannot be asked
    with Boundary(logger, "Provider '%s' does not list its models: %s", name):
        models = await provider.list_models()
    return [model if isinstance(model, str) else str(getattr(model, "id", model)) for model in models]


def _find_provider(short_name: str, coordinator: Any) -> Any:
    """Return the mounted provider of that name, else the most preferred instance of the module of that name."""
    mounted = (coordinator.get("providers") if coordinator is not None else None) or {}
    for key, provider in mounted.items():
        if provider_name(key) == short_name:
            return provider
    plan = MountPlan(getattr(coordinator, "config", None) or {})
    instances = [
        (_priority(entry, 0), mounted[name])
        for entry in plan.entries(section="providers")
        if (name := _instance_of(entry) or entry.module_id) in mounted and provider_name(entry.module_id) == short_name
    ]
    return min(instances, key=itemgetter(0))[1] if instances else None
