"""What a child session is told of the conversation that led to its task."""

from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import Message, TextBlock, ThinkingBlock

CONVERSATION = [
    {"role": "system", "content": "You are an assistant."},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "answer one"}]},
    {"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "and more"}]},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "tool": "bash", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "secret output"},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "another output"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c3", "name": "bash", "input": {}}]},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "answer two"}, {"type": "tool_call", "id": "c4", "name": "bash"}],
    },
    {"role": "user", "content": "three"},
]
SPOKEN = ["USER: one", "ASSISTANT: answer one", "USER: two\nand more", "ASSISTANT: answer two", "USER: three"]


def paragraphs(instruction: str) -> list[str]:
    """Return what an instruction tells of the conversation; its frame is checked."""
    context, _, task = instruction.partition("[END PARENT CONTEXT]")
    assert task == "\n\n[YOUR TASK]\nFind the bug"
    header, *spoken, end = context.split("\n\n")
    lines = header.split("\n")
    assert (lines[0], len(lines), end) == ("[PARENT CONVERSATION CONTEXT]", 2, "")
    assert lines[1].strip()
    return spoken


async def instruction_of(desk: Any, **given: Any) -> str:
    assert (await desk.delegate("Find the bug", **given)).success
    instruction: str = desk.application.calls.pop()["instruction"]
    return instruction


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"inherit_context": "none"},
        {"inherit_context_turns": 3},
        {"inherit_context": "recent", "inherit_context_turns": 0},
        {"inherit_context": "recent", "inherit_context_turns": -2},
    ],
    ids=str,
)
async def test_without_context_the_instruction_is_unchanged(desk: Any, given: dict[str, Any]) -> None:
    await desk.remember(*CONVERSATION)

    assert await instruction_of(desk, **given) == "Find the bug"


async def test_all_of_the_conversation_is_what_was_said_without_tools_and_thinking(desk: Any) -> None:
    await desk.remember(*CONVERSATION)

    assert paragraphs(await instruction_of(desk, inherit_context="all")) == SPOKEN


@pytest.mark.parametrize(("turns", "first"), [(1, 4), (2, 2), (3, 0), (9, 0)])
async def test_recent_turns_start_with_what_the_user_says(desk: Any, turns: int, first: int) -> None:
    await desk.remember(*CONVERSATION)

    told = await instruction_of(desk, inherit_context="recent", inherit_context_turns=turns)

    assert paragraphs(told) == SPOKEN[first:]


async def test_recent_are_five_turns(desk: Any) -> None:
    await desk.remember(*({"role": "user", "content": str(number)} for number in range(8)))

    told = paragraphs(await instruction_of(desk, inherit_context="recent"))

    assert told == [f"USER: {number}" for number in range(3, 8)]


async def test_long_messages_are_cut(make_desk: Any) -> None:
    desk = make_desk(max_context_chars=10)
    await desk.remember({"role": "user", "content": "x" * 10}, {"role": "assistant", "content": "y" * 11})

    told = paragraphs(await instruction_of(desk, inherit_context="all"))

    assert told == [f"USER: {'x' * 10}", f"ASSISTANT: {'y' * 10}... [truncated]"]


async def test_by_default_messages_are_cut_at_2000_characters(desk: Any) -> None:
    await desk.remember({"role": "user", "content": "x" * 2001})

    assert paragraphs(await instruction_of(desk, inherit_context="all")) == [f"USER: {'x' * 2000}... [truncated]"]


async def test_messages_and_blocks_may_be_objects(desk: Any) -> None:
    blocks = [ThinkingBlock(thinking="hm"), TextBlock(text="hello")]
    await desk.remember(Message(role="assistant", content=blocks), {"role": "user", "content": blocks}, "odd", None)

    assert paragraphs(await instruction_of(desk, inherit_context="all")) == ["ASSISTANT: hello", "USER: hello"]


class Unreadable:
    async def get_messages(self) -> list[Any]:
        raise RuntimeError("broken")


@pytest.mark.parametrize(
    "context", [None, SimpleNamespace(), Unreadable()], ids=["none", "without messages", "unreadable"]
)
async def test_a_conversation_that_cannot_be_read_does_not_keep_a_task_from_being_handed_on(
    desk: Any, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.coordinator.mount("context", context)

    assert await instruction_of(desk, inherit_context="all") == "Find the bug"
    assert any("without it" in record.getMessage() for record in caplog.records)


async def test_an_empty_conversation_leaves_the_instruction_unchanged(desk: Any) -> None:
    await desk.remember({"role": "tool", "tool_call_id": "c1", "content": "x"})

    assert await instruction_of(desk, inherit_context="recent") == "Find the bug"
