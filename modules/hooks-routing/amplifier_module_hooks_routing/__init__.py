"""hooks-routing: models by role; a matrix says which model serves which kind of work."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROVIDER_REQUEST, SESSION_RESUME, SESSION_START
from amplifier_kit.mounting import Handlers, offer_capability
from amplifier_system.model_choice import MODEL_ROLE_RESOLVER

from .routing_hook import MODULE_ID, RoutingHook

__all__ = ["RoutingHook", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Read the matrix, offer the resolver of roles and register the hook; returns the function that takes it back."""
    hook = await RoutingHook.create(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    handlers.register(SESSION_START, hook.resolve_agents, priority=5, name="routing-resolve")
    handlers.register(SESSION_RESUME, hook.resolve_agents, priority=5, name="routing-resolve")
    if handlers.register(PROVIDER_REQUEST, hook.inject, priority=15, name="routing-context"):
        hook.place()
    if hook.resolver.known_roles:
        offer_capability(coordinator, MODEL_ROLE_RESOLVER, hook.resolver)
    logger.info("mounted %s with matrix %r", MODULE_ID, hook.resolver.name)

    def cleanup() -> None:
        hook.remove()
        handlers.clear()

    return cleanup
