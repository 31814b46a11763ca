"""The tool on a coordinator of its own, and an application that records what it is asked for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_tool_task import TaskTool

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockContextManager, MockCoordinator

EVENTS = (
    "task:agent_spawned",
    "task:agent_resumed",
    "task:agent_timeout",
    "task:agent_cancelled",
    "task:agent_completed",
    "tool:error",
)
STAMPS = {"timestamp", "session_id", "parent_id"}
AGENTS = {
    "bug-hunter": {"description": "Finds the cause of a failure.", "instruction": "Hunt."},
    "Foundation:Bug Hunter": {"description": "The same, elsewhere."},
}


class Application:
    """Stands in for `session.spawn` or `session.resume`: keeps the keywords and answers, raises or waits."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = {"output": "found it", "session_id": "child-1"} if answer is None else answer
        self.calls: list[dict[str, Any]] = []
        self.running = self.most_running = 0
        self.was_cancelled = False
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.is_running = asyncio.Event()

    async def __call__(self, **keywords: Any) -> Any:
        self.calls.append(keywords)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.is_running.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        finally:
            self.running -= 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @property
    def call(self) -> dict[str, Any]:
        """The keywords of the only call."""
        (call,) = self.calls
        return call


class Desk:
    """The tool, the application behind it, and the events it emitted."""

    def __init__(self, **config: Any) -> None:
        self.coordinator = MockCoordinator()
        self.coordinator.config = {"agents": dict(AGENTS)}
        self.application, self.resumption = Application(), Application()
        self.coordinator.register_capability("session.spawn", self.application)
        self.coordinator.register_capability("session.resume", self.resumption)
        self.recorder = EventRecorder()
        for event in EVENTS:
            self.coordinator.hooks.register(event, self.recorder.record, name="recorder")
        self.tool = TaskTool(self.coordinator, config)

    def in_session(self, session_id: str) -> "Desk":
        self.coordinator.session_id = session_id
        return self

    def serve(self, capability: Any, name: str = "session.spawn") -> None:
        """Have another application behind the tool."""
        self.coordinator.register_capability(name, capability)

    async def remember(self, *messages: Any) -> None:
        """Give the session a conversation."""
        await self.coordinator.mount("context", MockContextManager(list(messages)))

    async def delegate(self, instruction: Any = "Find the bug", agent: Any = "bug-hunter", **given: Any) -> ToolResult:
        return await self.tool.execute({"agent": agent, "instruction": instruction, **given})

    async def resume(self, session_id: Any = "child-1", instruction: str = "Go on") -> ToolResult:
        return await self.tool.execute({"session_id": session_id, "instruction": instruction})

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.recorder.events]

    def data(self, event: str) -> dict[str, Any]:
        """Return what the only event of a name carries, without what every event carries."""
        ((_, data),) = self.recorder.get_events(event)
        own = STAMPS - ({"session_id"} if data.get("session_id") != "test-session" else set())
        return {key: value for key, value in data.items() if key not in own}


@pytest.fixture
def make_desk() -> Callable[..., Desk]:
    return Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def make_application() -> Callable[..., Application]:
    return Application


@pytest.fixture
def problem_of() -> Callable[[ToolResult], tuple[str, str]]:
    """Returns code and message of a failed result."""

    def problem_of(result: ToolResult) -> tuple[str, str]:
        assert not result.success
        assert result.error is not None
        assert result.output == result.error["message"]
        return str(result.error["code"]), str(result.error["message"])

    return problem_of
