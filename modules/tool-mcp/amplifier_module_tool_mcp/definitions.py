"""What a server says about its tools, and what of it is offered."""

import copy
import logging
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .entries import ServerSettings

if TYPE_CHECKING:
    from mcp.types import Tool

logger = logging.getLogger(__name__)

_LONGEST_DESCRIPTION = 4096


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One tool of a server; two are equal when the server says the same about them."""

    tool: str
    description: str
    schema: Mapping[str, Any]
    title: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_read_only(self) -> bool:
        return self.annotations.get("readOnlyHint") is True

    @property
    def is_repeatable(self) -> bool:
        """Whether, as the server claims, calling it twice does no more than calling it once."""
        return self.is_read_only or self.annotations.get("idempotentHint") is True

    @property
    def is_harmless(self) -> bool:
        return self.is_read_only or self.annotations.get("destructiveHint") is False

    @classmethod
    def read(cls, listed: "Tool", server: str) -> "ToolDefinition":
        schema = copy.deepcopy(listed.input_schema)
        schema.setdefault("properties", {})
        annotations = listed.annotations.model_dump(by_alias=True, exclude_none=True) if listed.annotations else {}
        title = listed.title or annotations.get("title")
        said = printable(listed.description or "", keep="\n\t").strip() or printable(title or "").strip()
        description = said or f"The tool {printable(listed.name)} of the MCP server {server}."
        return cls(listed.name, description[:_LONGEST_DESCRIPTION], schema, title, annotations)


def repair_listing(result: Any, server: str) -> None:
    """Complete or take out what in a listing would make the SDK refuse all of it; other answers stay as they are."""
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        return
    for tool in list(tools):
        schema = tool.get("inputSchema") if isinstance(tool, dict) else None
        if isinstance(schema, dict) and schema.setdefault("type", "object") != "object":
            logger.warning("server %s: tool %r is left out, its input is not an object", server, tool.get("name"))
            tools.remove(tool)


def offered(
    listed: Iterable["Tool"], settings: ServerSettings, *, level: int = logging.WARNING
) -> list[ToolDefinition]:
    """Return the tools that the filter and the limits let through, each once; what is odd is logged at a level."""
    tools = {tool.name: tool for tool in reversed(list(listed))}
    for pattern in (*(settings.allow or ()), *settings.deny):
        if not any(fnmatchcase(name, pattern) for name in tools):
            logger.log(level, "server %s: the pattern %r matches none of its tools", settings.name, pattern)
    definitions = [
        ToolDefinition.read(tool, settings.name) for tool in reversed(tools.values()) if settings.admits(tool.name)
    ]
    limit = settings.limits.max_tools
    if len(definitions) > limit:
        logger.log(
            level, "server %s: %d of %d tools are left out", settings.name, len(definitions) - limit, len(definitions)
        )
    return definitions[:limit]


def printable(text: str, *, keep: str = "") -> str:
    """Return a text without control characters, other than those to keep, and without halves of characters."""
    return "".join(
        character for character in text if character in keep or unicodedata.category(character) not in ("Cc", "Cs")
    )
