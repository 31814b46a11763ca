"""hook-shell: runs commands and prompts at the events of a session, as hooks.json declares them."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import Handlers

from .bridge import MODULE_ID, ShellHookBridge

__all__ = ["ShellHookBridge", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back."""
    bridge = ShellHookBridge(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator)
    if bridge.enabled:
        await asyncio.to_thread(bridge.load)
        for event, name, handler, priority in bridge.handlers():
            handlers.register(event, handler, priority=priority, name=name)
    logger.info("mounted %s", MODULE_ID)

    def cleanup() -> None:
        handlers.clear()
        bridge.close()

    return cleanup
