"""tool-search: find text in files, and files by name."""

import logging
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events

from .glob_tool import GlobTool
from .grep_tool import GrepTool
from .search_run import FINISHED, MODULE_ID, tool_configs

__all__ = ["GlobTool", "GrepTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount `grep` and `glob`, each with its own part of the configuration."""
    configs = tool_configs(config)
    for tool in (GrepTool(configs["grep"], coordinator), GlobTool(configs["glob"], coordinator)):
        await coordinator.mount("tools", tool, name=tool.name)
    contribute_events(coordinator, MODULE_ID, [FINISHED])
    logger.info("mounted %s: grep, glob", MODULE_ID)
