"""A resumed session finds its list again in the conversation."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_tool_todo import TodoTool

from amplifier_core.testing import MockContextManager, MockCoordinator
from amplifier_core.utils.tool_messages import Call
from amplifier_kit.messages.conversation import result_content, tool_message


def messages(call_id: str, arguments: dict[str, Any], answer: Any) -> list[dict[str, Any]]:
    """A call as it is stored, and its answer."""
    call = Call(call_id, "todo", arguments)
    return [
        {"role": "assistant", "content": "", "tool_calls": [call.to_dict()]},
        tool_message(call, answer if isinstance(answer, str) else json.dumps(answer)),
    ]


async def resumed(history: Any, *, is_resumed: bool = True) -> TodoTool:
    coordinator: Any = MockCoordinator()
    coordinator.session = SimpleNamespace(is_resumed=is_resumed)
    if history is not None:
        await coordinator.mount("context", MockContextManager(history))
    return TodoTool(coordinator)


async def listed(tool: TodoTool) -> list[str]:
    return [todo["content"] for todo in (await tool.execute({"action": "list"})).output["todos"]]


async def test_the_last_successful_call_counts(make_step: Any) -> None:
    earlier = messages("1", {"action": "create", "todos": [make_step("a")]}, {"status": "created", "count": 1})
    last = messages("2", {"action": "update", "todos": [make_step("b")]}, {"status": "updated", "count": 1})
    failed = messages("3", {"action": "update", "todos": [make_step("c")]}, "Todo 0 has invalid status: x")
    shown = messages("4", {"action": "list"}, {"status": "listed", "count": 1, "todos": []})

    tool = await resumed([*earlier, {"role": "user", "content": "go on"}, *last, *failed, *shown])

    assert await listed(tool) == ["b"]


async def test_what_the_tool_itself_answered_is_recognized(make_step: Any) -> None:
    arguments = {"action": "create", "todos": [make_step("a")]}
    answer = await TodoTool().execute(arguments)
    content = result_content(answer)
    assert isinstance(content, str)

    assert await listed(await resumed(messages("1", arguments, content))) == ["a"]


@pytest.mark.parametrize(
    "answer",
    [
        '{"status": "created", "count": 1, "todos": [{"content": "a…',
        '{"status":"updated"}\n\n<reminder/>',
        "{'count': 1, 'status': 'created'}",
    ],
    ids=["cut off", "with more behind it", "in other quotes"],
)
async def test_an_answer_is_recognized_however_it_was_stored(make_step: Any, answer: str) -> None:
    history = messages("1", {"action": "create", "todos": [make_step("a")]}, answer)

    assert await listed(await resumed(history)) == ["a"]


async def test_calls_and_results_in_blocks_are_found(make_step: Any) -> None:
    call = {"type": "tool_use", "id": "1", "name": "todo", "input": {"action": "create", "todos": [make_step("a")]}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": '{"status": "created"}'}]}
    history = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]

    assert await listed(await resumed(history)) == ["a"]


async def test_the_list_is_found_once_and_only_where_there_is_none(make_step: Any) -> None:
    history = messages("1", {"action": "create", "todos": [make_step("old")]}, {"status": "created"})
    tool = await resumed(history)

    await tool.execute({"action": "update", "todos": []})

    assert await listed(tool) == []


async def test_a_new_session_looks_for_nothing(make_step: Any) -> None:
    history = messages("1", {"action": "create", "todos": [make_step("old")]}, {"status": "created"})

    assert await listed(await resumed(history, is_resumed=False)) == []


async def test_a_stored_list_that_is_not_valid_is_passed_over(make_step: Any) -> None:
    good = messages("1", {"action": "create", "todos": [make_step("a")]}, {"status": "created"})
    bad = messages("2", {"action": "create", "todos": [3]}, {"status": "created"})

    assert await listed(await resumed([*good, *bad])) == ["a"]


@pytest.mark.parametrize(
    "history",
    [
        None,
        [],
        ["text"],
        [{"role": "tool"}],
        [{"role": "assistant", "tool_calls": "x"}],
        [{"role": "tool", "content": 3}],
    ],
    ids=str,
)
async def test_a_history_without_a_list_leaves_it_empty(history: Any) -> None:
    assert await listed(await resumed(history)) == []
