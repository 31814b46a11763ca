"""A loop that works on and on, and cannot be told anything meanwhile."""

import asyncio
from typing import Any

__amplifier_module_type__ = "orchestrator"


class DeafLoop:
    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any) -> str:
        await asyncio.sleep(600)
        return ""


async def mount(coordinator: Any, config: Any = None) -> None:
    await coordinator.mount("orchestrator", DeafLoop())
