"""tool-task: hand a task to another agent, which works on it in a session of its own."""

import logging
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.delegation.agents import ProviderPreference
from amplifier_kit.delegation.engine import declare_events

from .delegation import EVENTS
from .settings import MODULE_ID
from .tool import TaskTool

__all__ = ["ProviderPreference", "TaskTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the tool `task`."""
    tool = TaskTool(coordinator, config)
    await coordinator.mount("tools", tool, name=tool.name)
    declare_events(coordinator, MODULE_ID, EVENTS)
    logger.info("mounted %s", MODULE_ID)
