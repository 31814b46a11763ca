"""The module mounted on a coordinator of its own."""

from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_module_tool_mcp import McpServer, McpTool, mount

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator, wait_for

EVENTS = ("server_started", "server_failed", "server_stopped", "tools_changed", "progress")
PATIENCE_S = 10.0


class Mounted:
    """The module on a coordinator, and the events it emitted."""

    def __init__(self, coordinator: MockCoordinator) -> None:
        self.coordinator = coordinator
        self.cleanup: Callable[[], Awaitable[None]]
        self.recorder = EventRecorder()
        for event in EVENTS:
            coordinator.hooks.register(f"tool-mcp:{event}", self.recorder.record, name="recorder")

    @classmethod
    async def make(cls, servers: Any, **config: Any) -> "Mounted":
        mounted = cls(MockCoordinator())
        mounted.cleanup = await mount(mounted.coordinator, {"servers": servers, **config})
        return mounted

    @property
    def tools(self) -> dict[str, McpTool]:
        tools: dict[str, McpTool] = self.coordinator.get("tools")
        return tools

    def server(self, name: str = "s") -> McpServer:
        servers = {server.name: server for server in self.coordinator.get_capability("mcp.servers")}
        found: McpServer = servers[name]
        return found

    def status(self, name: str = "s") -> dict[str, Any]:
        return self.server(name).status()

    def tool(self, name: str, server: str = "s") -> McpTool:
        return self.tools[f"mcp_{server}_{name}"]

    async def prompt(self) -> None:
        await self.coordinator.hooks.emit("prompt:submit", {"prompt": "go"})

    async def call(self, name: str, server: str = "s", /, **arguments: Any) -> ToolResult:
        return await self.tool(name, server).execute(arguments)

    def told(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.recorder.events if name == f"tool-mcp:{event}"]

    async def until(self, condition: Callable[[], bool]) -> None:
        assert await wait_for(condition, PATIENCE_S), f"it did not happen; events: {self.recorder.events}"
