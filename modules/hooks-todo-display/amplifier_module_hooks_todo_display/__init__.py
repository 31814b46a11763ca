"""hooks-todo-display: the to-do list for the person, whenever it changes."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import TOOL_POST, TOOL_PRE
from amplifier_kit.mounting import Handlers

from .display import MODULE_ID, TodoDisplayHooks

__all__ = ["TodoDisplayHooks", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back."""
    hook = TodoDisplayHooks(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    handlers.register(TOOL_PRE, hook.note_input, priority=5, name=f"{MODULE_ID}-pre")
    handlers.register(TOOL_POST, hook.show_result, priority=5, name=f"{MODULE_ID}-post")
    logger.info("mounted %s", MODULE_ID)
    return handlers.clear
