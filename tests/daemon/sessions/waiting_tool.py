"""A tool that waits inside its call until a test lets it go on."""

import asyncio
from typing import Any, ClassVar

from amplifierd.sessions.session import Session


class WaitingTool:
    """`is_running` is set once it was called; `go` lets it return, and it `has_ended` then."""

    description = "Waits."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}

    def __init__(self, name: str = "wait_here") -> None:
        self.name = name
        self.is_running, self.go = asyncio.Event(), asyncio.Event()
        self.was_cancelled = self.has_ended = False

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    async def execute(self, input: dict[str, Any]) -> dict[str, Any]:
        self.is_running.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        self.has_ended = True
        return {"waited": True}

    async def mount(self, session: Session) -> "WaitingTool":
        await session.runner.kernel.session.coordinator.mount("tools", self, name=self.name)
        return self
