"""tool-todo: the list of steps that an agent keeps for itself, there for reminders and found again on resume."""

import logging
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.config import LenientConfig
from amplifier_kit.mounting import contribute_events

from .tool import UPDATED, TodoTool

__all__ = ["TodoTool", "mount"]

__amplifier_module_type__ = "tool"

MODULE_ID = "tool-todo"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the tool with an empty list."""
    LenientConfig(MODULE_ID, config).warn_unknown()
    tool = TodoTool(coordinator)
    await coordinator.mount("tools", tool, name=tool.name)
    contribute_events(coordinator, MODULE_ID, [UPDATED])
    logger.info("mounted %s", MODULE_ID)
