"""Calls of tools can be seen and stopped before they run, and the tools stay what was mounted."""

import gc
import inspect
import weakref
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from amplifier_core import ModuleCoordinator, ToolResult
from amplifier_core.testing import MockTool
from amplifier_core.tool_interception import Proceed


class Adder:
    name = "adder"
    description = "Adds."

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Add two numbers."""
        return ToolResult(output=input["a"] + input["b"])


class Slotted:
    """Takes no attribute."""

    __slots__ = ("name",)
    description = "Adds."

    def __init__(self) -> None:
        self.name = "slotted"

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(output=input["a"] + input["b"])


@dataclass(frozen=True)
class Frozen:
    name: str = "frozen"

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(output=input["a"] + input["b"])


class Recorder:
    """Notes the calls it sees and lets them run."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def __call__(self, tool_name: str, tool: Any, tool_input: Any, proceed: Proceed) -> Any:
        self.seen.append((tool_name, tool, tool_input))
        return await proceed(tool_input)


async def refuse(tool_name: str, tool: Any, tool_input: Any, proceed: Proceed) -> Any:
    return ToolResult(success=False, error={"message": "no"})


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator()


@pytest.mark.parametrize("tool", [Adder(), Frozen()], ids=lambda tool: type(tool).__name__)
@pytest.mark.parametrize("is_mounted_first", [True, False])
async def test_every_call_is_seen_and_the_tool_stays_the_object_that_was_mounted(
    coordinator: ModuleCoordinator, tool: Any, is_mounted_first: bool
) -> None:
    recorder = Recorder()
    if is_mounted_first:
        await coordinator.mount("tools", tool, name="add")
    coordinator.intercept_tools("recorder", recorder)
    if not is_mounted_first:
        coordinator.mount_points["tools"]["add"] = tool

    mounted = coordinator.get("tools")["add"]
    results = [
        await mounted.execute({"a": 1, "b": 2}),
        await coordinator.get("tools", "add").execute(input={"a": 3, "b": 4}),
    ]

    assert mounted is tool
    assert [result.output for result in results] == [3, 7]
    assert recorder.seen == [("add", tool, {"a": 1, "b": 2}), ("add", tool, {"a": 3, "b": 4})]
    assert inspect.iscoroutinefunction(tool.execute)
    assert list(inspect.signature(tool.execute).parameters) == ["input"]
    await coordinator.cleanup()
    assert (await tool.execute({"a": 1, "b": 1})).output == 2
    assert len(recorder.seen) == 2


async def test_a_tool_that_takes_no_attribute_is_seen_behind_a_stand_in(coordinator: ModuleCoordinator) -> None:
    recorder, tool = Recorder(), Slotted()
    await coordinator.mount("tools", tool)
    coordinator.intercept_tools("recorder", recorder)

    mounted = coordinator.get("tools", "slotted")

    assert (await mounted.execute({"a": 1, "b": 2})).output == 3
    assert (mounted.name, mounted.description, len(recorder.seen)) == ("slotted", "Adds.", 1)


async def test_the_latest_interceptor_is_asked_first_and_one_of_the_same_name_is_replaced(
    coordinator: ModuleCoordinator,
) -> None:
    order: list[str] = []

    def noting(label: str) -> Any:
        async def note(tool_name: str, tool: Any, tool_input: Any, proceed: Proceed) -> Any:
            order.append(label)
            return await proceed({**tool_input, "a": tool_input["a"] + 1})

        return note

    await coordinator.mount("tools", Adder())
    coordinator.intercept_tools("receipts", noting("receipts"))
    coordinator.intercept_tools("guard", noting("inherited"))
    undo = coordinator.intercept_tools("guard", noting("own"))

    assert (await coordinator.get("tools", "adder").execute({"a": 0, "b": 0})).output == 2
    assert order == ["own", "receipts"]
    undo()
    await coordinator.get("tools", "adder").execute({"a": 0, "b": 0})
    assert order[2:] == ["inherited", "receipts"]


async def test_an_interceptor_can_answer_in_the_place_of_a_tool(coordinator: ModuleCoordinator) -> None:
    tool = MagicMock(spec=["name", "execute"])
    tool.name, tool.execute = "mocked", AsyncMock(return_value=ToolResult(output="ran"))
    original = tool.execute
    await coordinator.mount("tools", tool)
    coordinator.intercept_tools("guard", refuse)

    assert (await tool.execute({})).error == {"message": "no"}
    original.assert_not_awaited()
    await coordinator.cleanup()
    assert tool.execute is original


async def test_without_interceptors_nothing_about_a_tool_changes(coordinator: ModuleCoordinator) -> None:
    tool = Adder()
    await coordinator.mount("tools", tool)

    assert vars(tool) == {}


async def test_a_tool_of_two_sessions_is_seen_by_both_and_given_back_by_each() -> None:
    tool, first, second = Adder(), ModuleCoordinator(), ModuleCoordinator()
    recorders = {coordinator: Recorder() for coordinator in (first, second)}
    for coordinator, recorder in recorders.items():
        await coordinator.mount("tools", tool)
        coordinator.intercept_tools("recorder", recorder)

    await tool.execute({"a": 1, "b": 2})
    await first.cleanup()
    await tool.execute({"a": 1, "b": 2})
    await second.cleanup()
    await tool.execute({"a": 1, "b": 2})

    assert [len(recorder.seen) for recorder in recorders.values()] == [1, 2]


async def test_a_session_is_forgotten_when_a_tool_outlives_it() -> None:
    tool, coordinator = Adder(), ModuleCoordinator()
    await coordinator.mount("tools", tool)
    coordinator.intercept_tools("recorder", Recorder())
    await coordinator.cleanup()
    gone = weakref.ref(coordinator)

    del coordinator
    gc.collect()

    assert gone() is None


async def test_a_mount_point_that_was_replaced_by_a_plain_dict_is_refused(coordinator: ModuleCoordinator) -> None:
    coordinator.mount_points["tools"] = {"echo": MockTool("echo")}

    with pytest.raises(TypeError, match="in which calls are not seen"):
        coordinator.intercept_tools("recorder", Recorder())
    await coordinator.cleanup()
