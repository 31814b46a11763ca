"""tool-mcp: the tools of any MCP server, run as a child process or reached over HTTP."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROMPT_SUBMIT
from amplifier_kit.mounting import Handlers, contribute_events, find_capability, offer_capability

from .events import ALL
from .running_server import RunningServer
from .server import McpServer
from .server_group import ServerGroup
from .settings import MODULE_ID, ModuleSettings
from .tool import McpTool

__all__ = ["McpServer", "McpTool", "mount", "on_session_ready"]

__amplifier_module_type__ = "tool"

SERVERS = "mcp.servers"

logger = logging.getLogger(__name__)

_PRIORITY = 900  # after the hooks that may deny a prompt: a denied one starts nothing


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Read the configuration and wait for the first prompt; the cleanup stops the servers."""
    group = ServerGroup(await ModuleSettings.read(config, coordinator), coordinator)
    handlers = Handlers(MODULE_ID, coordinator)
    handlers.register(PROMPT_SUBMIT, group.on_prompt, priority=_PRIORITY, name=MODULE_ID)
    offer_capability(coordinator, SERVERS, [*_servers_of(coordinator), *group.servers])
    contribute_events(coordinator, MODULE_ID, ALL)
    logger.info("mounted %s with %d servers", MODULE_ID, len(group.servers))

    async def cleanup() -> None:
        handlers.clear()
        await group.close()

    return cleanup


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    """Start the servers that are to be there before the first prompt."""
    running = [server for server in _servers_of(coordinator) if isinstance(server, RunningServer)]
    hosts = {id(server.host): server.host for server in running}
    await asyncio.gather(*(host.start(eager_only=True) for host in hosts.values()))


def _servers_of(coordinator: Any) -> list[McpServer]:
    """Return the servers of earlier mounts in the same session."""
    servers = find_capability(coordinator, SERVERS)
    return servers if isinstance(servers, list) else []
