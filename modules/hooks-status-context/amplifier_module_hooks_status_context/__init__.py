"""hooks-status-context: where the model works, in its system prompt, and what of it has changed since."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROMPT_SUBMIT, PROVIDER_REQUEST
from amplifier_kit.mounting import Handlers

from .status import MODULE_ID, StatusContextHook

__all__ = ["StatusContextHook", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back."""
    hook = StatusContextHook(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    handlers.register(PROMPT_SUBMIT, hook.refresh, priority=hook.priority, name=f"{MODULE_ID}-refresh")
    if handlers.register(PROVIDER_REQUEST, hook.inject, priority=hook.priority, name=MODULE_ID):
        hook.place()
    logger.info("mounted %s", MODULE_ID)

    def cleanup() -> None:
        hook.remove()
        handlers.clear()

    return cleanup
