"""The servers of one mount: started together, and stopped together."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import HookResult
from amplifier_core.boundary import Boundary
from amplifier_kit.config import make_do
from amplifier_kit.mounting import find_mounted
from amplifier_kit.tools.runs import announce, run_to_end

from .definitions import ToolDefinition
from .entries import EntryError, is_enabled, read_entry
from .events import TOOLS_CHANGED
from .running_server import RunningServer
from .server import McpServer
from .settings import MODULE_ID, ModuleSettings
from .tool import McpTool

# The names under which the tools of servers are mounted.


ToolKey = tuple[str, str]  # the name of the server, and the server's own name of the tool

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64
_KEPT = 55


class NameBook:
    """Gives out names: every tool has one for as long as the session lasts, and no name has two tools."""

    def __init__(self) -> None:
        self._names: dict[ToolKey, str] = {}

    def assign(
        self, wanted: Iterable[tuple[str, ToolKey]], is_free: Callable[[str, ToolKey], bool]
    ) -> dict[ToolKey, str | None]:
        """Return a name for each tool, given with its prefix, servers in the order of the configuration.

        `is_free` says whether a name is not taken. None is for a tool that cannot be given any.
        """
        ranks: dict[str, int] = {}
        asked = [(ranks.setdefault(key[0], len(ranks)), prefix, key) for prefix, key in wanted]
        asked.sort(key=lambda item: (item[0], bool(_UNUSABLE.search(item[2][1])), item[2][1]))
        return {key: self._assign(prefix, key, is_free) for _, prefix, key in asked}

    def _assign(self, prefix: str, key: ToolKey, is_free: Callable[[str, ToolKey], bool]) -> str | None:
        taken = {name: owner for owner, name in self._names.items()}
        known = [self._names[key]] if key in self._names else []
        for name in (*known, tool_name(prefix, key), tool_name(prefix, key, is_taken=True)):
            if taken.get(name, key) == key and is_free(name, key):
                self._names[key] = name
                return name
        return None


def tool_name(prefix: str, key: ToolKey, *, is_taken: bool = False) -> str:
    """Return the name of a tool; `is_taken` asks for the one that tells it from its namesakes."""
    server, tool = key
    digits = hashlib.sha256(f"{server}\n{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    name = _UNUSABLE.sub("_", f"{prefix}{server}_{tool}")
    if is_taken:
        name = f"{name}_{digits}"
    return f"{name[:_KEPT]}_{digits}" if len(name) > _LONGEST else name


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


# The tools of all servers where the model finds them: mounted, replaced and taken back under names that last.


logger = logging.getLogger(__name__)

_POINT = "tools"


@dataclass(slots=True)
class Change:
    """The names that are new, gone, or stand for something else now."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


class MountedTools:
    """What this module has mounted. A name is only touched while it holds the module's own object."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._book = NameBook()
        self._mounted: dict[ToolKey, McpTool] = {}
        self._is_closed = False

    def names_of(self, server: str) -> list[str]:
        return [tool.name for (owner, _), tool in self._mounted.items() if owner == server]

    async def offer(self, offers: Sequence[tuple["RunningServer", list[ToolDefinition]]]) -> dict[str, Change]:
        """Have exactly these tools of these servers mounted, and return what changed for each server."""
        if self._is_closed:
            return {}
        wanted = [(server.tool_prefix, (server.name, one.tool)) for server, tools in offers for one in tools]
        names = self._book.assign(wanted, self._is_free)
        changes = {server.name: Change() for server, _ in offers}
        for server, tools in offers:
            change = changes[server.name]
            await self._remove(server.name, {one.tool for one in tools}, change)
            for definition in tools:
                await self._put(server, definition, names[server.name, definition.tool], change)
        return changes

    async def clear(self) -> None:
        """Take everything back and mount nothing any more."""
        self._is_closed = True
        for key in list(self._mounted):
            await self._unmount(key)

    async def _put(self, server: "RunningServer", definition: ToolDefinition, name: str | None, change: Change) -> None:
        key = (server.name, definition.tool)
        known = self._mounted.get(key)
        if name is None:
            logger.warning("server %s: tool %r is left out, its name is taken", *key)
            return
        if known is not None and known.name == name:
            if known.definition == definition and self._holder(name) is known:
                return
            if (known.description, known.definition.schema) != (definition.description, definition.schema):
                logger.warning("server %s: what it says about its tool %r changed", *key)
            change.changed.append(name)
        else:
            change.added.append(name)
        self._mounted[key] = tool = McpTool(name, definition, server)
        await self._coordinator.mount(_POINT, tool, name=name)

    async def _remove(self, server: str, kept: set[str], change: Change) -> None:
        for key in [key for key in self._mounted if key[0] == server and key[1] not in kept]:
            change.removed.append(self._mounted[key].name)
            await self._unmount(key)

    async def _unmount(self, key: ToolKey) -> None:
        tool = self._mounted.pop(key)
        if self._holder(tool.name) is not tool:
            return
        with Boundary(logger, "%s could not be unmounted: %s", tool.name):
            await self._coordinator.unmount(_POINT, name=tool.name)

    def _is_free(self, name: str, key: ToolKey) -> bool:
        return self._holder(name) in (None, self._mounted.get(key))

    def _holder(self, name: str) -> Any:
        mounted = find_mounted(self._coordinator, _POINT)
        return mounted.get(name) if isinstance(mounted, dict) else None
