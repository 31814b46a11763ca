"""Which provider and model a piece of work gets: one order of precedence for agents, skills, recipes and names.

What the call prefers comes first, then the role that it names, then what the agent prefers, then the agent's role;
where none of them says anything, or no role can be served, the work is done with what its parent uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

MODEL_ROLE_RESOLVER = "model_role_resolver"
"""The capability of a routing module: `await resolve(role)` gives preferences, none where nothing serves the role."""

Decider = Literal["call", "call role", "agent", "agent role", "parent"]


@dataclass
class ProviderPreference:
    """A provider, a model or a pattern of models (`claude-*`), and configuration for it."""

    provider: str
    model: str
    config: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"provider": self.provider, "model": self.model}
        return {**plain, "config": self.config} if self.config else plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProviderPreference:
        for key in ("provider", "model"):
            if key not in data:
                raise ValueError(f"ProviderPreference requires '{key}' key, got {sorted(data)}")
        return cls(data["provider"], data["model"], dict(data.get("config") or {}))

    @classmethod
    def of(cls, given: Any) -> ProviderPreference:
        """Return a preference that came as data, or as an object of another package."""
        if isinstance(given, Mapping):
            return cls.from_dict(given)
        return cls(given.provider, given.model, dict(getattr(given, "config", None) or {}))


@dataclass(frozen=True)
class ModelChoice:
    """The preferences to go by, best first, and who decided; `role` is the one that was served.

    `unserved` are the roles that were asked for and that nothing serves.
    """

    preferences: tuple[ProviderPreference, ...] = ()
    decided_by: Decider = "parent"
    role: str | None = None
    unserved: tuple[str, ...] = ()


async def choose_model(
    coordinator: Any,
    *,
    provider_preferences: Sequence[Any] | None = None,
    model_role: str | Sequence[str] | None = None,
    agent: Mapping[str, Any] | None = None,
) -> ModelChoice:
    """Return what a piece of work is done with; `coordinator` is that of the session which hands it out.

    Of several roles the first one that is served counts. What the resolver raises comes through.
    """
    if provider_preferences:
        return _preferred(provider_preferences, "call")
    called = await _served(coordinator, model_role, "call role")
    if called.preferences:
        return called
    definition = agent or {}
    if declared := definition.get("provider_preferences"):
        return _preferred(declared, "agent", called.unserved)
    own = await _served(coordinator, definition.get("model_role"), "agent role", called.unserved)
    return own if own.preferences else ModelChoice(unserved=own.unserved)


def roles_in(model_role: Any) -> tuple[str, ...]:
    """Return the roles that a value names: a text is one, a list has them in order."""
    if isinstance(model_role, str):
        return (model_role,) if model_role.strip() else ()
    return tuple(role for role in model_role or () if isinstance(role, str) and role.strip())


def _preferred(given: Sequence[Any], by: Decider, unserved: tuple[str, ...] = ()) -> ModelChoice:
    return ModelChoice(tuple(ProviderPreference.of(item) for item in given), by, unserved=unserved)


async def _served(coordinator: Any, model_role: Any, by: Decider, unserved: tuple[str, ...] = ()) -> ModelChoice:
    roles = roles_in(model_role)
    resolver = coordinator.get_capability(MODEL_ROLE_RESOLVER) if roles and coordinator is not None else None
    if resolver is None:
        return ModelChoice(unserved=(*unserved, *roles))
    for number, role in enumerate(roles):
        if found := await resolver.resolve(role):
            preferences = tuple(ProviderPreference.of(item) for item in found)
            return ModelChoice(preferences, by, role, (*unserved, *roles[:number]))
    return ModelChoice(unserved=(*unserved, *roles))
