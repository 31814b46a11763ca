"""The scheduler on a coordinator of its own, and in real sessions."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from amplifier_module_hooks_scheduler_cost_aware import mount

from amplifier_core import AmplifierSession, ChatResponse, HookResult, TextBlock, ToolCall
from amplifier_core.testing import EventRecorder, MockCoordinator, MockProvider, MockTool

EMITTED = ("scheduler:cost_alert", "scheduler:budget_exceeded")


class Till:
    """The mounted scheduler, what it has charged and what it announced."""

    def __init__(self, coordinator: Any, cleanup: Callable[[], None] = lambda: None) -> None:
        self.coordinator, self.cleanup = coordinator, cleanup
        self.recorder = EventRecorder()
        for event in EMITTED:
            coordinator.hooks.register(event, self.recorder.record, name="recorder")

    @property
    def session_cost(self) -> float:
        cost: float = self.coordinator.get_capability("scheduler.session_cost")()
        return cost

    async def emit(self, event: str, **data: Any) -> HookResult:
        return await self.coordinator.hooks.emit(event, data)

    async def select(self, tool_name: Any, available: Any = (), **data: Any) -> HookResult:
        return await self.emit("tool:selecting", tool_name=tool_name, available_tools=list(available), **data)

    def announced(self, event: str) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in data.items() if key not in ("timestamp", "session_id", "parent_id")}
            for _, data in self.recorder.get_events(event)
        ]


class CostedSession(Till):
    """A real session whose model calls the tools it is told to."""

    def __init__(self, session: AmplifierSession) -> None:
        super().__init__(session.coordinator)
        self.session = session

    async def call(self, *names: str, tools: dict[str, list[str]]) -> list[str]:
        """Let the model call tools, given each with the arguments it requires; returns those that ran."""
        ran: list[str] = []
        for name, required in tools.items():
            tool = MockTool(name)
            tool.input_schema = {"type": "object", "properties": {}, "required": required}

            async def execute(arguments: dict[str, Any], name: str = name) -> str:
                ran.append(name)
                return f"{name} ran"

            tool.execute = execute
            await self.coordinator.mount("tools", tool)
        calls = [
            ToolCall(id=f"c{number}", name=name, arguments=dict.fromkeys(tools[name], "x"))
            for number, name in enumerate(names)
        ]
        answers = [ChatResponse(content=[TextBlock(text="")], tool_calls=calls), "done"]
        await self.coordinator.mount("providers", MockProvider(answers), name="mock")
        assert await self.session.execute("go") == "done"
        return ran

    async def results(self) -> list[str]:
        messages = await self.coordinator.get("context").get_messages()
        return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.fixture
def mount_till() -> Callable[..., Awaitable[Till]]:
    async def mount_one(**config: Any) -> Till:
        coordinator = MockCoordinator()
        coordinator.hooks.set_default_fields(session_id="s1", parent_id=None)
        return Till(coordinator, await mount(coordinator, config))

    return mount_one


@pytest.fixture
async def start_session() -> AsyncIterator[Callable[..., Awaitable[CostedSession]]]:
    sessions: list[AmplifierSession] = []

    async def start(
        loop: str = "loop-events", loop_config: dict[str, Any] | None = None, **config: Any
    ) -> CostedSession:
        plan = {
            "session": {
                "orchestrator": {"module": loop, "config": loop_config or {}},
                "context": {"module": "context-simple"},
            },
            "hooks": [{"module": "hooks-scheduler-cost-aware", "config": config}],
        }
        session = AmplifierSession(plan)
        sessions.append(session)
        await session.initialize()
        assert session.status.load_failures == []
        return CostedSession(session)

    yield start
    for session in sessions:
        await session.cleanup()
