"""The light content blocks of events and streams."""

import dataclasses
from typing import Any

import pytest

from amplifier_core.content_models import (
    ContentBlock,
    ContentBlockType,
    TextContent,
    ThinkingContent,
    ToolCallContent,
    ToolResultContent,
)

RAW = {"vendor": "data"}


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (ContentBlock(ContentBlockType.TEXT, RAW), {"type": "text"}),
        (TextContent(raw=RAW, text="hi"), {"type": "text", "text": "hi"}),
        (ThinkingContent(raw=RAW, text="hm"), {"type": "thinking", "text": "hm"}),
        (
            ToolCallContent(raw=RAW, id="1", name="bash", arguments={"command": "ls"}),
            {"type": "tool_call", "id": "1", "name": "bash", "arguments": {"command": "ls"}},
        ),
        (ToolCallContent(), {"type": "tool_call", "id": "", "name": "", "arguments": None}),
        (ToolResultContent(tool_call_id="1", output=[1]), {"type": "tool_result", "tool_call_id": "1", "output": [1]}),
        (
            ToolResultContent(raw=RAW, error={"message": "no"}),
            {"type": "tool_result", "tool_call_id": "", "output": None, "error": {"message": "no"}},
        ),
        (ToolResultContent(error={}), {"type": "tool_result", "tool_call_id": "", "output": None}),
    ],
)
def test_a_block_is_dumped_without_the_vendors_raw_data(block: ContentBlock, data: dict[str, Any]) -> None:
    assert block.to_dict() == data


@pytest.mark.parametrize(
    ("block_class", "fields"),
    [
        (ContentBlock, ["type", "raw"]),
        (TextContent, ["type", "raw", "text"]),
        (ThinkingContent, ["type", "raw", "text"]),
        (ToolCallContent, ["type", "raw", "id", "name", "arguments"]),
        (ToolResultContent, ["type", "raw", "tool_call_id", "output", "error"]),
    ],
)
def test_type_and_raw_are_the_first_fields(block_class: type[ContentBlock], fields: list[str]) -> None:
    assert [field.name for field in dataclasses.fields(block_class)] == fields


def test_the_bare_block_needs_a_type() -> None:
    with pytest.raises(TypeError):
        ContentBlock()  # type: ignore[call-arg]


def test_a_block_type_is_its_text() -> None:
    assert {member.name: member.value for member in ContentBlockType} == {
        "TEXT": "text",
        "THINKING": "thinking",
        "TOOL_CALL": "tool_call",
        "TOOL_RESULT": "tool_result",
    }
    assert isinstance(ContentBlockType.TEXT, str)
