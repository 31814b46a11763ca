"""tool-traced: three tools that leave a line in `runs.txt` of a folder when they begin and when they end.

`look` only reads, `note` writes, and `send` puts a file into `outbox`, where it finds out afterwards whether it did.
Configuration: `folder`, and `pause_s`, how long each of them takes.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from amplifier_core import ModuleCoordinator, ToolResult

__amplifier_module_type__ = "tool"

_SCHEMA = {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}


class TracedTool:
    description = "For tests."
    input_schema = _SCHEMA

    def __init__(self, name: str, folder: Path, pause_s: float) -> None:
        self.name, self._folder, self._pause_s = name, folder, pause_s
        self.retry = {"look": "safe", "send": "check"}.get(name, "never")
        self.effects = frozenset({"read"} if name == "look" else {"write"})

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        token = input["token"]
        self._mark("begin", token)
        await asyncio.sleep(self._pause_s)
        if self.name == "send":
            (self._folder / "outbox" / token).touch()
            await asyncio.sleep(self._pause_s)
        self._mark("end", token)
        return ToolResult(output=f"{self.name} {token} done")

    async def check(self, input: dict[str, Any], tool_call_id: str) -> ToolResult | None:
        return ToolResult(output="sent" if (self._folder / "outbox" / input["token"]).exists() else "not sent")

    def _mark(self, phase: str, token: str) -> None:
        descriptor = os.open(self._folder / "runs.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{phase} {token}\n".encode())
        os.close(descriptor)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    given = config or {}
    folder, pause_s = Path(given["folder"]), float(given.get("pause_s", 0.02))
    (folder / "outbox").mkdir(exist_ok=True)
    for name in ("look", "note", "send"):
        await coordinator.mount("tools", TracedTool(name, folder, pause_s), name=name)
