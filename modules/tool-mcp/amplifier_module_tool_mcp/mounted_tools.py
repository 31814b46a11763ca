"""The tools of all servers where the model finds them: mounted, replaced and taken back under names that last."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amplifier_core.boundary import Boundary
from amplifier_kit.mounting import find_mounted

from .definitions import ToolDefinition
from .names import NameBook, ToolKey
from .tool import McpTool

if TYPE_CHECKING:
    from .running_server import RunningServer

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
