"""One reader for the tool calls and results of messages, in every spelling."""

from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import Message, ToolCallBlock, ToolResultBlock
from amplifier_core.utils.tool_messages import (
    Call,
    Result,
    calls_in,
    listed_calls,
    read_call,
    results_in,
    with_stand_ins,
)

READ = Call("c1", "search", {"q": "x"})


@pytest.mark.parametrize(
    "given",
    [
        {"id": "c1", "tool": "search", "arguments": {"q": "x"}},
        {"id": "c1", "name": "search", "input": {"q": "x"}},
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}},
        {"tool_call_id": "c1", "name": "search", "arguments": '{"q": "x"}'},
        {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "x"}},
        ToolCallBlock(id="c1", name="search", input={"q": "x"}),
        SimpleNamespace(id="c1", name="search", arguments={"q": "x"}),
    ],
)
def test_every_spelling_of_a_call_is_read(given: Any) -> None:
    assert read_call(given) == READ


@pytest.mark.parametrize(("given", "problem"), [("{", "Expecting"), ("[1]", "JSON object, got list"), (3, "got int")])
def test_unusable_arguments_are_a_problem_of_the_call(given: Any, problem: str) -> None:
    call = read_call({"id": "c1", "tool": "search", "arguments": given})

    assert (call.arguments, problem in call.problem) == ({}, True)


def test_calls_are_listed_first_and_counted_once() -> None:
    blocks = [{"type": "tool_use", "id": name, "name": "t", "input": {}} for name in ("b", "a")]
    message = {"role": "assistant", "content": blocks, "tool_calls": [{"id": "a", "tool": "t"}, {"tool": "no id"}]}

    assert [call.id for call in calls_in(message)] == ["a", "b"]
    assert [call.id for call in listed_calls(message)] == ["a"]
    assert calls_in({**message, "role": "user"}) == []


def test_a_call_that_its_own_message_answers_is_not_waiting() -> None:
    call = {"type": "tool_use", "id": "a", "name": "web", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "found"}

    assert calls_in({"role": "assistant", "content": [call, result]}) == []


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "function", "tool_call_id": "c1", "content": "ok"},
        {"role": "user", "tool_call_id": "c1", "content": "ok"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "tool_result", "tool_call_id": "c1", "output": "ok"}],
        },
        Message(role="tool", tool_call_id="c1", content="ok"),
        Message(role="user", content=[ToolResultBlock(tool_call_id="c1", output="ok")]),
    ],
)
def test_every_spelling_of_a_result_is_read(message: Any) -> None:
    assert results_in(message) == [Result("c1", "ok")]


def test_a_message_that_brings_no_result_is_told_from_one_whose_result_cannot_be_read() -> None:
    assert results_in({"role": "user", "content": "hello"}) is None
    assert results_in({"role": "assistant", "content": [{"type": "tool_result", "tool_call_id": "c1"}]}) is None
    assert results_in({"role": "tool", "content": "for nobody"}) == []
    assert results_in({"role": "user", "content": [{"type": "tool_result", "output": "for nobody"}]}) == []


def test_stand_ins_follow_the_message_they_are_for() -> None:
    assert with_stand_ins(["a", "b", "c"], {1: ["x", "y"], 2: ["z"]}) == ["a", "b", "x", "y", "c", "z"]
