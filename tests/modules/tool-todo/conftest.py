"""The tool mounted on a coordinator of its own, and the events it emitted."""

from typing import Any

import pytest
from amplifier_module_tool_todo import TodoTool, mount

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator


def step(content: str = "Run tests", status: str = "pending", **more: Any) -> dict[str, Any]:
    return {"content": content, "activeForm": f"{content} …", "status": status, **more}


class Desk:
    """One session's list."""

    def __init__(self, coordinator: MockCoordinator) -> None:
        self.coordinator: Any = coordinator
        self.tool: TodoTool = coordinator.get("tools", "todo")
        self.recorder = EventRecorder()
        coordinator.hooks.register("todo:updated", self.recorder.record, name="recorder")

    async def do(self, action: Any, *todos: Any) -> ToolResult:
        return await self.tool.execute({"action": action, **({"todos": list(todos)} if todos else {})})

    async def listed(self) -> list[Any]:
        todos: list[Any] = (await self.do("list")).output["todos"]
        return todos


async def new_desk() -> Desk:
    coordinator = MockCoordinator()
    await mount(coordinator, {})
    return Desk(coordinator)


@pytest.fixture
async def desk() -> Desk:
    return await new_desk()


@pytest.fixture
async def other_desk() -> Desk:
    return await new_desk()


@pytest.fixture
def make_step() -> Any:
    return step
