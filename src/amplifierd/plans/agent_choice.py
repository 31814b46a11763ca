"""What can be chosen about the agent of a plan without other modules: which provider, its model, how hard it thinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_core.packages import provider_name
from amplifierd.exceptions import ProviderNotInPlanError

from .runtime_values import key_variables

FindKey = Callable[[str], str | None]
"""Returns the stored key of a provider module."""


@dataclass(frozen=True)
class AgentChoice:
    """What is chosen; None leaves it as it is. `provider` is the module of one, with or without `provider-`."""

    provider: str | None = None
    model: str | None = None
    effort: str | None = None
    max_iterations: int | None = None

    def preferred_in(self, plan: Mapping[str, Any]) -> AgentChoice:
        """Return the choice as a preference: without the provider and its model where a plan has only others."""
        if self.provider is None:
            return self
        names = [entry.identity for entry in providers_of(plan)]
        if any(self.provider in (name, provider_name(name)) for name in names):
            return self
        return replace(self, provider=None, model=None)

    def told(self) -> dict[str, Any]:
        """Return what is chosen and nothing else."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def overrides(self, plan: Mapping[str, Any], environment: Mapping[str, str], find_key: FindKey) -> dict[str, Any]:
        """Return what the choice changes about a plan, as overrides of a request.

        A model without a provider is one of the first provider that has a key.

        Raises:
            ProviderNotInPlanError: the plan has no such provider.
        """
        identity = None
        if self.provider or self.model:
            identity = _named(self.provider, plan) if self.provider else preferred_provider(plan, environment, find_key)
        return self.overrides_of(identity)

    def overrides_of(self, identity: str | None) -> dict[str, Any]:
        """Return the same for a provider that is known, `provider-acme` or `provider-acme/instance`."""
        loop: dict[str, Any] = {}
        found: dict[str, Any] = {}
        if identity is not None:
            module_id, _, instance = identity.partition("/")
            loop["default_provider"] = instance or provider_name(module_id)
            if self.model:
                which = {"module": module_id, **({"instance_id": instance} if instance else {})}
                found["providers"] = [{**which, "config": {"default_model": self.model}}]
        if self.effort:
            loop["reasoning_effort"] = self.effort
        if self.max_iterations:
            loop["max_iterations"] = self.max_iterations
        return {**found, "session": {"orchestrator": {"config": loop}}} if loop else found


def providers_of(plan: Mapping[str, Any]) -> list[PlanEntry]:
    return [entry for entry in MountPlan(dict(plan)).entries() if entry.module_type == "provider"]


def preferred_provider(plan: Mapping[str, Any], environment: Mapping[str, str], find_key: FindKey) -> str:
    """Return the provider that is asked first: of those that have a key, else of all, the one with the best priority.

    Raises:
        ProviderNotInPlanError: the plan has none.
    """
    by_priority = sorted(providers_of(plan), key=lambda entry: entry.config.get("priority", 100))
    if not by_priority:
        raise ProviderNotInPlanError("the plan has no provider, so it has no model", hint="choose another profile")

    def has_key(entry: PlanEntry) -> bool:
        return any(map(environment.get, key_variables(entry))) or find_key(entry.module_id) is not None

    return next((entry for entry in by_priority if has_key(entry)), by_priority[0]).identity


def _named(provider: str, plan: Mapping[str, Any]) -> str:
    names = [entry.identity for entry in providers_of(plan)]
    found = [name for name in names if provider in (name, provider_name(name))]
    if not found:
        raise ProviderNotInPlanError(
            f"the plan has no provider {provider!r}", hint=f"it has {', '.join(names)}" if names else "it has none"
        )
    return found[0]
