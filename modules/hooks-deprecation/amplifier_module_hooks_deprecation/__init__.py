"""hooks-deprecation: tells a person that something their agent uses is being retired."""

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from amplifier_core import ModuleCoordinator
from amplifier_core.events import SESSION_START
from amplifier_kit.mounting import Handlers, contribute_events

from .notices import EVENTS, MODULE_ID, DeprecationHook

__all__ = ["DeprecationHook", "mount", "on_session_ready"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)

_mounted: WeakSet[DeprecationHook] = WeakSet()  # where `on_session_ready` finds what `mount` made for its coordinator


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back."""
    hook = DeprecationHook(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    handlers.register(SESSION_START, hook.notify, priority=10, name=MODULE_ID)
    contribute_events(coordinator, MODULE_ID, EVENTS)
    _mounted.add(hook)
    logger.info("mounted %s", MODULE_ID)
    return handlers.clear


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    """Find out what of it this session really uses, now that its plan is final."""
    for hook in list(_mounted):
        if hook.coordinator is coordinator:
            hook.decide()
