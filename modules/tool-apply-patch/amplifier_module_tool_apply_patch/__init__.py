"""tool-apply-patch: change several files by one patch, all of them or none."""

import logging
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events, offer_capability

from .tool import ENGINE, EVENTS, MODULE_ID, ApplyPatchTool

__all__ = ["ApplyPatchTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the tool `apply_patch`, and say which of its two faces it shows."""
    tool = ApplyPatchTool(config, coordinator)
    await coordinator.mount("tools", tool, name=tool.name)
    offer_capability(coordinator, ENGINE, tool.engine)
    contribute_events(coordinator, MODULE_ID, EVENTS)
    logger.info("mounted %s, engine %s", MODULE_ID, tool.engine)
