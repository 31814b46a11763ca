"""The tool on a coordinator of its own, and an application that records what it is asked for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_tool_delegate import DelegateTool

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator

EVENTS = tuple(
    f"delegate:{name}"
    for name in (
        *("agent_spawned", "agent_resumed", "agent_completed", "agent_cancelled", "error"),
        "model_role_unresolved",
    )
)
STAMPS = {"timestamp", "parent_id"}
AGENTS = {
    "finder": {"description": "Finds things.", "instruction": "Find."},
    "anchors:builder": {"description": "Builds things.", "model_role": ["coding", "general"]},
}


class Application:
    """Stands in for `session.spawn`: keeps the keywords and answers, raises or waits."""

    def __init__(self) -> None:
        self.answer: Any = {"output": "found it", "session_id": "child-1", "status": "success", "turn_count": 3}
        self.calls: list[dict[str, Any]] = []
        self.running = self.most_running = 0
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


class Roles:
    """Serves some roles, as a routing module does."""

    name = "balanced"

    def __init__(self, **models: str) -> None:
        self.models = models
        self.known_roles = tuple(models)

    async def resolve(self, role: str) -> list[dict[str, Any]]:
        return [{"provider": "mock", "model": self.models[role]}] if role in self.models else []


class Desk:
    """The tool, the application behind it, and the events it emitted."""

    def __init__(self, **config: Any) -> None:
        self.coordinator = MockCoordinator()
        self.coordinator.config = {"agents": dict(AGENTS)}
        self.application, self.resumption = Application(), Application()
        self.serve(self.application)
        self.serve(self.resumption, "session.resume")
        self.recorder = EventRecorder()
        for event in EVENTS:
            self.coordinator.hooks.register(event, self.recorder.record, name="recorder")
        self.tool = DelegateTool(self.coordinator, config)

    def serve(self, capability: Any, name: str = "session.spawn") -> None:
        self.coordinator.register_capability(name, capability)

    async def delegate(self, instruction: Any = "Find it", agent: Any = "finder", **given: Any) -> ToolResult:
        return await self.tool.execute({"agent": agent, "instruction": instruction, **given})

    async def resume(self, session_id: Any = "0-1_finder", **given: Any) -> ToolResult:
        return await self.tool.execute({"session_id": session_id, "instruction": "Go on", **given})

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.recorder.events]

    def data(self, event: str) -> dict[str, Any]:
        """Return what the only event of a name carries, without what every event carries."""
        ((_, data),) = self.recorder.get_events(event)
        return {key: value for key, value in data.items() if key not in STAMPS}


@pytest.fixture
def make_desk() -> Callable[..., Desk]:
    return Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def make_roles() -> Callable[..., Roles]:
    return Roles


@pytest.fixture
def code_of() -> Callable[[ToolResult], str]:
    """Returns the code of a failed result."""

    def code_of(result: ToolResult) -> str:
        assert not result.success
        assert result.error is not None
        return str(result.error["code"])

    return code_of
