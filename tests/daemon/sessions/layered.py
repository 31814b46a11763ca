"""A kernel session whose calls pass through layers, as the session runtime has it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from amplifier_core import AmplifierSession
from amplifierd.sessions.layers.calls import CallLayer, LayeredOrchestrator

STAND_INS = Path(__file__).parents[2] / "stand_ins"
MODULES = Path(__file__).parents[3] / "modules"
LOOPS = ("loop-basic", "loop-events", "loop-streaming")


def plan(loop: str = "loop-basic", *, context: str = "context-simple", **loop_config: Any) -> dict[str, Any]:
    return {
        "session": {
            "orchestrator": {"module": loop, "source": str(MODULES / loop), "config": loop_config},
            "context": {"module": context, "source": str(MODULES / context)},
        }
    }


class Recorded:
    """The events of a session, in their order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [data for event, data in self.events if event == name]


@asynccontextmanager
async def layered(
    mount_plan: dict[str, Any], layers: list[CallLayer], providers: dict[str, Any], *tools: Any
) -> AsyncIterator[AmplifierSession]:
    async with AmplifierSession(mount_plan) as session:
        coordinator = session.coordinator
        for name, provider in providers.items():
            await coordinator.mount("providers", provider, name=name)
        for tool in tools:
            await coordinator.mount("tools", tool)
        orchestrator = LayeredOrchestrator(coordinator.get("orchestrator"), coordinator, layers, lambda name, _: name)
        await coordinator.mount("orchestrator", orchestrator)
        yield session
