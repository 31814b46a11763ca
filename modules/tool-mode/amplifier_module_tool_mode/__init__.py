"""tool-mode: lets the model list, enter and leave modes."""

import logging
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events

from .tool import EVENTS, MODULE_ID, ModeTool

__all__ = ["ModeTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the tool `mode`."""
    tool = ModeTool(config, coordinator)
    await coordinator.mount("tools", tool, name=tool.name)
    contribute_events(coordinator, MODULE_ID, EVENTS)
    logger.info("mounted %s", MODULE_ID)
