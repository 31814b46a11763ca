"""The hook that gives agents the models of their roles, and tells the model which roles there are."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from amplifier_core import HookResult
from amplifier_core.boundary import Boundary
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING, PLACEMENTS, injected, place_in_prompt, reminder
from amplifier_kit.mounting import find_capability, offer_capability
from amplifier_system.model_choice import ProviderPreference, roles_in

from .matrix_loader import Matrix, MatrixError, load_matrix
from .resolver import PRERESOLVED, MatrixModelRoleResolver

MODULE_ID = "hooks-routing"
ROUTING = "session.routing"
"""What the application, or the parent, says of routing: `matrix`, `overrides`, `directories`, `preresolved_models`."""

_PATIENCE_S = 5.0

logger = logging.getLogger(__name__)


class RoutingHook:
    """The matrix is read when the module is mounted; later changes of its file do not reach a running session."""

    def __init__(self, coordinator: Any, config: ModuleConfig, resolver: MatrixModelRoleResolver) -> None:
        self._coordinator = coordinator
        self.enabled_events = config.strings("enabled_events", None)
        self._placement = config.choice("placement", "prefix", PLACEMENTS)
        config.warn_unknown()
        self.resolver = resolver
        self._remove: Callable[[], None] | None = None

    @classmethod
    async def create(cls, coordinator: Any, given: dict[str, Any] | None) -> "RoutingHook":
        config = ModuleConfig(MODULE_ID, given)
        shared = find_capability(coordinator, ROUTING)
        routing = dict(shared) if isinstance(shared, Mapping) else {}
        name = routing.get("matrix") or config.text("default_matrix", "balanced")
        own = [*config.strings("custom_routing_dirs", []), *(routing.get("directories") or ())]
        root = config.text("_bundle_root", None)
        directories = _directories(*own, "~/.amplifier/routing", *([f"{root}/routing"] if root else []))
        overrides = {**config.mapping("overrides", {}), **(routing.get("overrides") or {})}
        matrix = Matrix(str(name))
        try:
            matrix = (await asyncio.to_thread(load_matrix, str(name), directories)).overridden(overrides)
        except MatrixError as error:
            logger.error("%s: roles are not served: %s", MODULE_ID, error)  # noqa: TRY400 - a person can act on the text alone
        listings = routing.get(PRERESOLVED)
        listings = listings if isinstance(listings, dict) else {}
        offer_capability(coordinator, ROUTING, {**routing, PRERESOLVED: listings})
        return cls(coordinator, config, MatrixModelRoleResolver(matrix, coordinator, listings, directories))

    def place(self) -> None:
        """Put the roles into the system prompt, if that is asked for and possible."""
        if self._placement == "prefix" and self.resolver.known_roles:
            self._remove = place_in_prompt(self._coordinator, MODULE_ID, self._text)

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()

    async def inject(self, event: str, data: dict[str, Any]) -> HookResult:
        """Tell the model of the roles, where its system prompt does not."""
        if self._remove is not None or not self.resolver.known_roles:
            return NOTHING
        return injected(self._text(), "system")

    async def resolve_agents(self, event: str, data: dict[str, Any]) -> HookResult:
        """Give every agent with a role the models that serve it, in a map of the session's own.

        What an agent prefers itself stays. A role that nothing serves is an error, and its agent works with the
        session's model.
        """
        plan = getattr(self._coordinator, "config", None)
        agents = plan.get("agents") if isinstance(plan, Mapping) else None
        wanting = {
            str(name): roles
            for name, agent in (agents.items() if isinstance(agents, Mapping) else ())
            if isinstance(agent, Mapping) and not agent.get("provider_preferences")
            if (roles := roles_in(agent.get("model_role")))
        }
        if not wanting or not self.resolver.known_roles:
            return NOTHING
        found: dict[str, list[ProviderPreference]] = {}
        with Boundary(logger, "not every agent has its model yet, they are looked for when they are called: %s"):
            async with asyncio.timeout(_PATIENCE_S):
                answers = await asyncio.gather(*map(self.resolver.resolve, wanting.values()))
            found = dict(zip(wanting, answers, strict=True))
        for name, preferences in found.items():
            if not preferences:
                logger.error(
                    "no model serves %s of agent %r: matrix %r (%s); it works with the session's model",
                    " or ".join(wanting[name]),
                    name,
                    self.resolver.name,
                    self.resolver.matrix.source,
                )
        self._derive({name: preferences for name, preferences in found.items() if preferences})
        return NOTHING

    def _derive(self, found: Mapping[str, list[ProviderPreference]]) -> None:
        """Put a map of agents in place that knows their models; the plan that others share stays as it is."""
        plan = self._coordinator.config
        agents = {
            name: {**agent, "provider_preferences": [each.to_dict() for each in found[name]]}
            if name in found
            else agent
            for name, agent in plan["agents"].items()
        }
        derived = {**plan, "agents": agents}
        self._coordinator.config = derived
        session: Any = getattr(self._coordinator, "session", None)
        if getattr(session, "config", None) is plan:
            session.config = derived

    def _text(self) -> str:
        roles = "\n".join(f"- {name}: {role.description}" for name, role in self.resolver.matrix.roles.items())
        head = f"Models by role (matrix {self.resolver.name}); name one as model_role when you delegate:"
        return reminder("routing-matrix", f"{head}\n{roles}")


def _directories(*names: str) -> list[Path]:
    return [Path(name).expanduser() for name in names]
