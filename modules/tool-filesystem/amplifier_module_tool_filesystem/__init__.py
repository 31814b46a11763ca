"""tool-filesystem: read, write and edit files, within the paths that the configuration allows."""

import logging
from collections.abc import Mapping
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.mount_plan import MountPlan
from amplifier_kit.mounting import contribute_events, offer_capability
from amplifier_kit.tools.workspace import SEEN_FILES, Workspace

from .edit_tool import EditTool
from .read_tool import ReadTool
from .settings import EVENTS, MODULE_ID, Settings
from .write_tool import WriteTool

__all__ = ["EditTool", "ReadTool", "WriteTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the three tools; they share what they know about the files of the session."""
    settings = Settings.read(config)
    workspace = Workspace(settings, coordinator)
    offer_capability(coordinator, SEEN_FILES, workspace.seen)
    if settings.require_approval and not _has_approval(coordinator):
        logger.warning(
            "%s: require_approval is set, and no hooks-approval is in the session: files are written without asking;"
            " add hooks-approval to its hooks",
            MODULE_ID,
        )
    for tool in (ReadTool, WriteTool, EditTool):
        await coordinator.mount(
            "tools", tool(None, coordinator, workspace=workspace, settings=settings), name=tool.name
        )
    contribute_events(coordinator, MODULE_ID, EVENTS)
    logger.info("mounted %s: read_file, write_file, edit_file", MODULE_ID)


def _has_approval(coordinator: ModuleCoordinator) -> bool:
    plan = getattr(coordinator, "config", None)  # a stub may have none
    return isinstance(plan, Mapping) and MountPlan(plan).find("hooks-approval", section="hooks") is not None
