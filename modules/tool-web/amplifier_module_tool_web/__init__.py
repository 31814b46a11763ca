"""tool-web: fetch pages and search the web, within limits."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import contribute_events

from .fetch import FETCHED
from .fetch_tool import WebFetchTool
from .search_tool import WebSearchTool
from .session import WebSession
from .settings import MODULE_ID, Settings

__all__ = ["WebFetchTool", "WebSearchTool", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount the two tools; the cleanup closes the HTTP session. Raises `ValueError` for a search that cannot work."""
    settings = Settings.read(config)
    session = WebSession(settings)
    for tool in (
        WebSearchTool(config, coordinator, settings=settings),
        WebFetchTool(config, session, coordinator, settings=settings),
    ):
        await coordinator.mount("tools", tool, name=tool.name)
    contribute_events(coordinator, MODULE_ID, [FETCHED])
    logger.info("mounted %s: web_search, web_fetch", MODULE_ID)
    return session.close
