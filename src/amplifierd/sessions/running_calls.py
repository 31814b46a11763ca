"""Which tool call runs at the moment, asked by the tool that is about to run."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator
from amplifier_core.events import TOOL_PRE

from .journal import GO_ON, PRIORITY


class RunningCalls:
    """Finds the id of a tool call from inside it.

    Our loops say at the coordinator which call a task serves. For other loops the calls that `tool:pre` announced are
    remembered until a tool runs with that name and input.
    """

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._announced: list[tuple[str, Any, str]] = []
        coordinator.hooks.register(TOOL_PRE, self._hear, priority=PRIORITY, name="session-running-calls")

    def find(self, tool_name: str, input: dict[str, Any]) -> str:
        running = getattr(self._coordinator, "_tool_dispatch_contexts", None)
        served = running.get(asyncio.current_task()) if isinstance(running, dict) else None
        call_id = served.get("tool_call_id") if isinstance(served, dict) else None
        return call_id if isinstance(call_id, str) and call_id else self._take(tool_name, input)

    def forget(self) -> None:
        """Forget what was announced: the turn has ended."""
        self._announced.clear()

    async def _hear(self, event: str, data: dict[str, Any]) -> HookResult:
        call_id = data.get("tool_call_id")
        if isinstance(call_id, str) and call_id:
            self._announced.append((str(data.get("tool_name")), data.get("tool_input"), call_id))
        return GO_ON

    def _take(self, tool_name: str, input: dict[str, Any]) -> str:
        same_name = [entry for entry in self._announced if entry[0] == tool_name]
        found = next((entry for entry in same_name if entry[1] == input), same_name[0] if same_name else None)
        if found is None:
            return f"call_{uuid.uuid4().hex}"
        self._announced.remove(found)
        return found[2]
