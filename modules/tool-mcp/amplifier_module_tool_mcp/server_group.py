"""The servers of one mount: started together, and stopped together."""

import asyncio
import logging
from typing import Any

from amplifier_core import HookResult
from amplifier_kit.config import make_do
from amplifier_kit.tools.runs import announce, run_to_end

from .definitions import ToolDefinition
from .entries import EntryError, is_enabled, read_entry
from .events import TOOLS_CHANGED
from .mounted_tools import MountedTools
from .running_server import RunningServer
from .server import McpServer
from .settings import MODULE_ID, ModuleSettings


class ServerGroup:
    """All servers, in the order of the configuration, and their tools."""

    def __init__(self, settings: ModuleSettings, coordinator: Any) -> None:
        self.coordinator = coordinator
        self._tools = MountedTools(coordinator)
        self._expected: dict[str, list[ToolDefinition] | None] = {}  # of servers that are started together
        self._listed: set[str] = set()  # servers whose tools were mounted before
        self._starts: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.servers = [
            self._make(name, entry, settings) for name, entry in settings.entries.items() if is_enabled(name, entry)
        ]

    @property
    def _running(self) -> list[RunningServer]:
        return [server for server in self.servers if isinstance(server, RunningServer)]

    async def on_prompt(self, event: str, data: dict[str, Any]) -> HookResult:
        """Answer `prompt:submit`: start what is not started yet, and wait for it."""
        await self.start()
        return HookResult()

    async def start(self, *, eager_only: bool = False) -> None:
        """Start the servers that are idle, all at the same time.

        Returns when each is ready, has failed, or had its time; the start goes on when the caller is cancelled.
        """
        idle = [server for server in self._running if server.state == "idle"]
        cohort = [server for server in idle if not eager_only or server.settings.limits.start == "eager"]
        if not cohort or self._is_closed:
            return
        for server in cohort:
            self._expected[server.name] = None
            server.start()
        starting = asyncio.create_task(self._start_together(cohort))
        self._starts.add(starting)
        starting.add_done_callback(self._starts.discard)
        await asyncio.shield(starting)

    async def offer(self, server: RunningServer, tools: list[ToolDefinition]) -> None:
        """Have exactly these tools of a server mounted: now, or with those of the servers it is started with."""
        if server.name in self._expected:
            self._expected[server.name] = tools
        else:
            await self._mount([(server, tools)])

    def names_of(self, server: str) -> list[str]:
        return self._tools.names_of(server)

    async def close(self) -> None:
        """Take everything back and stop all servers, whatever happens to the caller; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            await run_to_end(self._close())

    async def _close(self) -> None:
        await self._tools.clear()
        await asyncio.gather(*(server.stop() for server in self._running))
        await asyncio.gather(*self._starts)

    async def _start_together(self, cohort: list[RunningServer]) -> None:
        await asyncio.gather(*(server.wait(server.settings.limits.startup_timeout_s) for server in cohort))
        listed = [(server, self._expected.pop(server.name)) for server in cohort]
        await self._mount([(server, tools) for server, tools in listed if tools is not None])

    async def _mount(self, offers: list[tuple[RunningServer, list[ToolDefinition]]]) -> None:
        known = {server.name for server, _ in offers if server.name in self._listed}
        changes = await self._tools.offer(offers)
        self._listed.update(changes)
        for server, change in changes.items():
            if change and server in known:
                payload = {"added": change.added, "removed": change.removed, "changed": change.changed}
                await announce(self.coordinator, TOOLS_CHANGED, {"server": server, **payload})

    def _make(self, name: Any, entry: Any, settings: ModuleSettings) -> McpServer:
        try:
            return RunningServer(read_entry(name, entry, settings), self.coordinator, self)
        except EntryError as exc:
            make_do(f"{MODULE_ID}: {exc}", level=logging.ERROR)
            return McpServer(str(name), str(exc))
