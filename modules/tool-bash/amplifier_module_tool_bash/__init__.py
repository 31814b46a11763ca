"""tool-bash: shell commands, within the limits of a safety profile and with nothing left behind."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events

from .comparison import UNDONE
from .launch import FINISHED, STARTED
from .settings import MODULE_ID
from .tool import BashTool

__all__ = ["BashTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount the tool; the cleanup lets go of background commands."""
    tool = BashTool(config, coordinator)
    await coordinator.mount("tools", tool, name=tool.name)
    contribute_events(coordinator, MODULE_ID, [STARTED, FINISHED, UNDONE])
    logger.info("mounted %s with the safety profile %s", MODULE_ID, tool.settings.validator.profile)
    return tool.close
