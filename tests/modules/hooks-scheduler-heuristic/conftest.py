"""Sessions in which the model always wants the same tool, and a scheduler may think otherwise."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ChatResponse, TextBlock, ToolCall
from amplifier_core.testing import EventRecorder, MockProvider, MockTool


class ScheduledSession:
    """A real session with `loop-events`, the tools `a`, `b` and `c`, and this scheduler."""

    def __init__(self, session: AmplifierSession) -> None:
        self.session = session
        self.recorder = EventRecorder()
        for event in ("tool:selecting", "tool:selected"):
            session.coordinator.hooks.register(event, self.recorder.record, priority=100, name="recorder")

    async def call(self, *names: str) -> list[str]:
        """Let the model call tools one after the other; returns the names of those that ran instead."""
        ran: list[str] = []
        for name in ("a", "b", "c"):
            tool = MockTool(name)

            async def execute(arguments: dict[str, Any], name: str = name) -> str:
                ran.append(name)
                return f"{name} ran"

            tool.execute = execute
            await self.session.coordinator.mount("tools", tool)
        calls = [ToolCall(id=f"c{number}", name=name, arguments={}) for number, name in enumerate(names)]
        answers = [ChatResponse(content=[TextBlock(text="")], tool_calls=calls), "done"]
        await self.session.coordinator.mount("providers", MockProvider(answers), name="mock")
        assert await self.session.execute("go") == "done"
        return ran


@pytest.fixture
async def start_session() -> AsyncIterator[Callable[..., Awaitable[ScheduledSession]]]:
    sessions: list[AmplifierSession] = []

    async def start(loop: dict[str, Any] | None = None, **config: Any) -> ScheduledSession:
        plan = {
            "session": {
                "orchestrator": {"module": "loop-events", "config": loop or {}},
                "context": {"module": "context-simple"},
            },
            "hooks": [{"module": "hooks-scheduler-heuristic", "config": config}],
        }
        session = AmplifierSession(plan)
        sessions.append(session)
        await session.initialize()
        assert session.status.load_failures == []
        return ScheduledSession(session)

    yield start
    for session in sessions:
        await session.cleanup()
