"""The list of steps: replaced as a whole or not at all."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_tool_todo import TodoTool, mount

from amplifier_core.testing import MockCoordinator


async def test_create_keeps_its_own_copy_whatever_becomes_of_the_input(desk: Any, make_step: Any) -> None:
    todos = [make_step("a"), make_step("b"), make_step("c", tags=["x"])]

    result = await desk.tool.execute({"action": "create", "todos": todos})
    expected = [make_step("a"), make_step("b"), make_step("c", tags=["x"])]
    todos[0]["content"] = "changed"
    todos[2]["tags"].append("y")
    todos.clear()
    result.output["todos"][1]["status"] = "completed"

    assert result.output["status"] == "created"
    assert result.output["count"] == 3
    assert desk.coordinator.todo_state == expected
    assert await desk.listed() == expected


async def test_the_list_on_the_coordinator_is_never_the_one_handed_out(desk: Any, make_step: Any) -> None:
    await desk.do("create", make_step("a"))

    listed = await desk.listed()
    listed[0]["content"] = "changed"
    listed.clear()

    assert desk.coordinator.todo_state == [make_step("a")]


async def test_a_list_that_is_put_on_the_coordinator_counts(desk: Any, make_step: Any) -> None:
    desk.coordinator.todo_state = [make_step("restored")]

    assert await desk.listed() == [make_step("restored")]


async def test_a_step_needs_no_active_form_to_show(desk: Any) -> None:
    result = await desk.do("create", {"content": "a", "activeForm": "", "status": "pending"})

    assert result.success


async def test_mounting_starts_with_an_empty_list(desk: Any) -> None:
    assert desk.coordinator.todo_state == []
    assert desk.coordinator.get_capability("todo.state") == []
    assert (await desk.do("list")).output == {"status": "listed", "count": 0, "todos": []}


async def test_update_replaces_the_list_and_counts(desk: Any, make_step: Any) -> None:
    await desk.do("create", make_step("old"))

    result = await desk.do("update", make_step("a", "completed"), make_step("b", "in_progress"), make_step("c"))

    counts = {"count": 3, "pending": 1, "in_progress": 1, "completed": 1}
    assert result.output == {"status": "updated", **counts}
    assert [todo["content"] for todo in await desk.listed()] == ["a", "b", "c"]


async def test_more_than_one_step_in_progress_is_warned_about(desk: Any, make_step: Any) -> None:
    result = await desk.do("update", make_step("a", "in_progress"), make_step("b", "in_progress"))

    assert result.success
    assert "2 steps" in result.output["warning"]


async def test_a_list_can_be_emptied(desk: Any, make_step: Any) -> None:
    await desk.do("create", make_step())

    result = await desk.tool.execute({"action": "update", "todos": []})

    assert result.output["count"] == 0
    assert desk.coordinator.todo_state == []


INVALID: dict[str, tuple[Any, str]] = {
    "no list": (None, "todos must be a list"),
    "an object": ({"content": "a"}, "todos must be a list"),
    "a text": ("a", "todos must be a list"),
    "a text in the list": (["x"], "Todo 0 missing required fields (content, status, activeForm)"),
    "a number in the list": ([1], "Todo 0 missing required fields (content, status, activeForm)"),
    "a missing field": ([{"content": "a", "status": "pending"}], "Todo 0 missing required fields"),
    "a status nobody knows": (
        [{"content": "a", "status": "done", "activeForm": "b"}],
        "Todo 0 has invalid status: done",
    ),
    "a status that is not text": ([{"content": "a", "status": ["x"], "activeForm": "b"}], "Todo 0 has invalid status"),
    "no content": ([{"content": " ", "status": "pending", "activeForm": "b"}], "Todo 0 needs text as its content"),
    "content that is not text": (
        [{"content": 3, "status": "pending", "activeForm": "b"}],
        "Todo 0 needs text as its content",
    ),
    "an active form that is not text": (
        [{"content": "a", "status": "pending", "activeForm": 3}],
        "Todo 0 needs text as its activeForm",
    ),
    "too much content": ([{"content": "x" * 2001, "status": "pending", "activeForm": "b"}], "2001 characters"),
    "too many": ([{"content": "a", "status": "pending", "activeForm": "b"}] * 201, "201 items"),
}


@pytest.mark.parametrize("action", ["create", "update"])
@pytest.mark.parametrize(("todos", "message"), INVALID.values(), ids=INVALID)
async def test_an_invalid_list_changes_nothing(
    desk: Any, make_step: Any, action: str, todos: Any, message: str
) -> None:
    await desk.do("create", make_step("kept"))

    result = await desk.tool.execute({"action": action, "todos": todos})

    assert (result.success, result.error["code"]) == (False, "invalid_input")
    assert message in result.error["message"]
    assert result.output == result.error["message"]
    assert desk.coordinator.todo_state == [make_step("kept")]
    assert len(desk.recorder.events) == 1


async def test_a_list_at_the_limits_is_valid(desk: Any, make_step: Any) -> None:
    result = await desk.tool.execute({"action": "create", "todos": [make_step("x" * 1998)] * 200})

    assert result.output["count"] == 200


@pytest.mark.parametrize("given", [{}, {"action": "delete"}, {"action": None}, {"action": ["list"]}, None, "list"])
async def test_an_unknown_action_names_the_known_ones(desk: Any, given: Any) -> None:
    result = await desk.tool.execute(given)

    assert result.error["code"] == "invalid_input"
    assert result.error["message"].endswith("Valid actions: create, update, list")
    assert result.error["message"].startswith("Unknown action: ")


async def test_two_sessions_do_not_share_a_list(desk: Any, other_desk: Any, make_step: Any) -> None:
    await desk.do("create", make_step("mine"))

    assert await other_desk.listed() == []
    assert other_desk.coordinator.todo_state == []


async def test_changes_are_announced_and_lists_are_not(desk: Any, make_step: Any) -> None:
    await desk.do("create", make_step("a"), make_step("b", "completed"))
    await desk.do("list")

    ((event, data),) = desk.recorder.events
    facts = {key: data[key] for key in ("action", "count", "pending", "in_progress", "completed")}
    assert (event, facts) == (
        "todo:updated",
        {"action": "create", "count": 2, "pending": 1, "in_progress": 0, "completed": 1},
    )
    assert await desk.coordinator.collect_contributions("observability.events") == [["todo:updated"]]


async def test_a_sink_that_fails_changes_nothing(desk: Any, make_step: Any) -> None:
    desk.coordinator.hooks = SimpleNamespace(emit=None)

    assert (await desk.do("create", make_step())).success


async def test_a_coordinator_without_attributes_keeps_the_list_as_a_capability(make_step: Any) -> None:
    class Narrow:
        __slots__ = ("capabilities",)

        def __init__(self) -> None:
            self.capabilities: dict[str, Any] = {}

        def register_capability(self, name: str, value: Any) -> None:
            self.capabilities[name] = value

    coordinator = Narrow()

    await TodoTool(coordinator).execute({"action": "create", "todos": [make_step("a")]})

    assert coordinator.capabilities == {"todo.state": [make_step("a")]}


@pytest.mark.parametrize("coordinator", [None, object()], ids=["none", "bare"])
async def test_the_tool_works_without_a_coordinator(coordinator: Any, make_step: Any) -> None:
    tool = TodoTool(coordinator)

    await tool.execute({"action": "create", "todos": [make_step("a")]})

    assert (await tool.execute({"action": "list"})).output["todos"] == [make_step("a")]


async def test_there_is_nothing_to_configure(caplog: pytest.LogCaptureFixture) -> None:
    await mount(MockCoordinator(), {"id": "x", "limit": 3})

    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "'limit'" in record.getMessage()


async def test_the_schema_is_the_one_that_is_promised(desk: Any) -> None:
    schema = desk.tool.get_schema()

    assert (schema["type"], schema["required"], schema) == ("object", ["action"], desk.tool.input_schema)
    assert schema["properties"]["action"]["enum"] == ["create", "update", "list"]
    item = schema["properties"]["todos"]["items"]
    assert set(item["properties"]) == {"content", "activeForm", "status"}
    assert item["properties"]["status"]["enum"] == ["pending", "in_progress", "completed"]
    assert item["required"] == ["content", "status", "activeForm"]
