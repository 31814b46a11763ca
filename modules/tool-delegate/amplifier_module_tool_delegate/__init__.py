"""tool-delegate: hand work to agents, several at once, each in a session of its own."""

import logging
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.delegation.engine import declare_events

from .delegation import EVENTS
from .settings import MODULE_ID
from .tool import DelegateTool

__all__ = ["DelegateTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the tool `delegate`."""
    tool = DelegateTool(coordinator, config)
    await coordinator.mount("tools", tool, name=tool.name)
    declare_events(coordinator, MODULE_ID, EVENTS)
    logger.info("mounted %s", MODULE_ID)
