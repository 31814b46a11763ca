"""One tool of a server."""

import copy
import json
import logging
from typing import TYPE_CHECKING, Any

from amplifier_core import ToolResult
from amplifier_kit.tools.effects import ALL_EFFECTS, NETWORK, READ
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.runs import answered

from .definitions import ToolDefinition

if TYPE_CHECKING:
    from .running_server import RunningServer

logger = logging.getLogger(__name__)


class McpTool:
    """Is mounted under `name`; `tool` is what its `server` calls it."""

    def __init__(self, name: str, definition: ToolDefinition, server: "RunningServer") -> None:
        self.name = name
        self.definition = definition
        self.description = definition.description
        self.server = server.name
        self.tool = definition.tool
        self.require_approval = server.requires_approval(definition)
        self.effects = ALL_EFFECTS if self.require_approval else frozenset({READ, NETWORK})
        self.retry = "safe" if definition.is_repeatable and not self.require_approval else "never"
        self._server = server

    @property
    def input_schema(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self.definition.schema))

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    def get_metadata(self) -> dict[str, Any]:
        """Return what approval needs to know, and what the server says about the tool."""
        return {
            "requires_approval": self.require_approval,
            "approval_hints": {"risk_level": self._server.risk_level(self.definition)},
            "mcp": {
                "server": self.server,
                "tool": self.tool,
                "title": self.definition.title,
                "annotations": dict(self.definition.annotations),
            },
        }

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        logger.debug("%s is called", self.name)
        return await answered(self.name, self._execute(input))

    async def _execute(self, given: Any) -> ToolResult:
        return await self._server.call(self.definition, self.name, self._arguments(given))

    def _arguments(self, given: Any) -> dict[str, Any]:
        """Return what the server is sent; all but the obvious is the server's to judge. Raises `ToolFailure`."""
        if not isinstance(given, dict):
            raise self._invalid(f"the input must be an object, got {type(given).__name__}")
        schema = self.definition.schema
        required, properties = schema.get("required"), schema.get("properties")
        for key in required if isinstance(required, list) else ():
            if key not in given:
                raise self._invalid(f"{key!r} is required")
        named = properties if isinstance(properties, dict) else {}
        arguments = {key: value for key, value in given.items() if not str(key).startswith("_") or key in named}
        try:
            json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            raise self._invalid("the input cannot be written as JSON") from None
        return arguments

    def _invalid(self, problem: str) -> ToolFailure:
        return ToolFailure(f"{self.name}: {problem}", "invalid_input", server=self.server, tool=self.tool)
