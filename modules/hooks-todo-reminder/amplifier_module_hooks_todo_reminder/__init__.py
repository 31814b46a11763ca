"""hooks-todo-reminder: the to-do list before each request, and a nudge when it is forgotten."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROVIDER_REQUEST, TOOL_POST
from amplifier_kit.mounting import Handlers

from .reminder import MODULE_ID, TodoReminderHook

__all__ = ["TodoReminderHook", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back."""
    hook = TodoReminderHook(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    handlers.register(TOOL_POST, hook.note_tool, priority=hook.priority, name=f"{MODULE_ID}-tools")
    handlers.register(PROVIDER_REQUEST, hook.remind, priority=hook.priority, name=MODULE_ID)
    logger.info("mounted %s", MODULE_ID)
    return handlers.clear
