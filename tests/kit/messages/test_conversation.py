"""The shapes of a conversation: calls and blocks of every spelling, and the messages that record them."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core import ChatResponse, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock, ToolResult, Usage
from amplifier_core.utils.tool_messages import Call, block_type
from amplifier_kit.messages.conversation import (
    as_response,
    as_returned,
    as_tool_result,
    assistant_message,
    block_dict,
    cancelled_content,
    extra_field,
    has_call_blocks,
    read_calls,
    replaced_content,
    result_content,
    text_of,
    tool_message,
    usage_of,
)


class TestCalls:
    @pytest.mark.parametrize(
        "call",
        [
            ToolCall(id="c1", name="t", arguments={"a": 1}),
            {"id": "c1", "name": "t", "arguments": {"a": 1}},
            {"tool_call_id": "c1", "tool": "t", "input": {"a": 1}},
            {"id": "c1", "function": {"name": "t", "arguments": ' {"a": 1} '}},
            SimpleNamespace(id="c1", function=SimpleNamespace(name="t", arguments='{"a": 1}')),
            SimpleNamespace(tool_call_id="c1", tool="t", input={"a": 1}),
        ],
    )
    def test_every_spelling_is_read(self, call: Any) -> None:
        assert read_calls([call]) == [Call("c1", "t", {"a": 1})]

    def test_a_name_is_a_text(self) -> None:
        assert read_calls([MagicMock(id="c1", tool="t", arguments={})]) == [Call("c1", "t")]

    @pytest.mark.parametrize("arguments", [None, "", "  ", "{}", "null", {}, []])
    def test_no_arguments_are_an_empty_dict(self, arguments: Any) -> None:
        assert read_calls([{"id": "c1", "name": "t", "arguments": arguments}]) == [Call("c1", "t")]

    @pytest.mark.parametrize("arguments", ["{", "[1]", "7", "0", "false", '"text"', 7, ["a"], "[" * 100_000])
    def test_arguments_of_another_kind_are_a_problem(self, arguments: Any) -> None:
        (call,) = read_calls([{"id": "c1", "name": "t", "arguments": arguments}])

        assert (call.arguments, bool(call.problem)) == ({}, True)

    def test_missing_ids_are_made_up_and_differ(self) -> None:
        first, second = read_calls([{"name": "t"}, ToolCall(id="", name="t", arguments={})])

        assert first.id.startswith("call_")
        assert len(first.id) == len("call_") + 32
        assert first.id != second.id

    @pytest.mark.parametrize("calls", [None, "text", {"id": "c1"}, 7])
    def test_what_is_no_list_has_no_calls(self, calls: Any) -> None:
        assert read_calls(calls) == []

    @given(
        st.dictionaries(
            st.text(), st.one_of(st.none(), st.integers(), st.text(), st.dictionaries(st.text(), st.text()))
        )
    )
    def test_any_dict_can_be_read(self, call: dict[str, Any]) -> None:
        (read,) = read_calls([call])

        assert read.id
        assert isinstance(read.arguments, dict)


class TestText:
    def test_only_text_blocks_count_and_a_blank_line_parts_them(self) -> None:
        content = [
            {"type": "text", "text": "one"},
            ThinkingBlock(thinking="hm", text="no"),
            {"type": "tool_use", "text": "no"},
            TextBlock(text=""),
            SimpleNamespace(type=SimpleNamespace(value="text"), text="two"),
            SimpleNamespace(type="text", text=None),
            "three",
        ]

        assert text_of(content) == "one\n\ntwo"

    @pytest.mark.parametrize(("content", "text"), [("plain", "plain"), (None, ""), (7, ""), ([], "")])
    def test_content_may_be_anything(self, content: Any, text: str) -> None:
        assert text_of(content) == text


class TestBlocks:
    @pytest.mark.parametrize(
        "block",
        [
            TextBlock(text="x"),
            TextBlock(text="x", visibility="user"),
            TextBlock(text="x", citations=[{"place": 1}]),
            ToolCallBlock(id="c1", name="t", input={"a": {"b": 1}}),
        ],
    )
    def test_a_block_of_the_kernel_is_dumped_as_pydantic_dumps_it(self, block: Any) -> None:
        dumped = block_dict(block)

        assert list(dumped.items()) == list(block.model_dump().items())

        dumped.clear()
        assert block_dict(block) == block.model_dump()

    def test_a_block_is_dumped_with_everything_it_carries(self) -> None:
        dumped = block_dict(ThinkingBlock(thinking="hm", signature="s", vendor="x"))

        assert dumped["signature"] == "s"
        assert dumped["vendor"] == "x"

    def test_an_unknown_object_is_described_by_its_attributes(self) -> None:
        assert block_dict(SimpleNamespace(type="text", text="x")) == {"type": "text", "text": "x"}
        assert block_dict("plain") == {"type": "text", "text": "plain"}
        assert block_type({}) == "None"

    @pytest.mark.parametrize(
        ("content", "has"),
        [
            ([ToolCallBlock(id="c1", name="t", input={})], True),
            ([{"type": "tool_use"}], True),
            ([TextBlock(text="x")], False),
            ("text", False),
            (None, False),
        ],
    )
    def test_calls_in_the_content_are_seen(self, content: Any, has: bool) -> None:
        assert has_call_blocks(content) is has

    def test_a_response_may_carry_more_than_the_kernel_knows(self) -> None:
        assert extra_field(ChatResponse(content=[], text="x"), "text") == "x"
        assert extra_field(ChatResponse(content=[]), "text") is None
        assert extra_field(SimpleNamespace(text="x"), "text") == "x"

    def test_a_block_whose_methods_return_no_dict_is_read_by_its_fields(self) -> None:
        block = MagicMock(type="text", text="hello")

        described = block_dict(block)

        assert (described["type"], described["text"]) == ("text", "hello")


class TestUsage:
    def test_it_is_json_data(self) -> None:
        usage = Usage(input_tokens=1, output_tokens=2, total_tokens=3, cost_usd=Decimal("0"))

        assert usage_of(as_response(SimpleNamespace(usage=usage)))["cost_usd"] == "0"  # type: ignore[index]

    @pytest.mark.parametrize(
        ("usage", "told"), [(None, None), ({"a": 1}, {"a": 1}), (SimpleNamespace(a=1), {"a": 1}), ("much", None)]
    )
    def test_any_form_is_taken(self, usage: Any, told: Any) -> None:
        assert usage_of(as_response(SimpleNamespace(usage=usage))) == told
        assert usage_of(as_response(object())) is None


class TestForeignResponses:
    @pytest.mark.parametrize("given", [{"content": "hi"}, SimpleNamespace(content="hi")])
    def test_what_another_shape_lacks_is_none_and_its_provider_sees_it_as_it_was(self, given: Any) -> None:
        response = as_response(given)

        assert (response.content, response.tool_calls, response.usage) == ("hi", None, None)
        assert as_returned(response) is given

    def test_the_kernels_own_stay_as_they_are(self) -> None:
        response = ChatResponse(content=[])

        assert as_response(response) is as_returned(response) is response


class TestMessages:
    def test_a_call_block_stays_only_with_its_call(self) -> None:
        content = [{"type": "tool_call", "id": "c1"}, {"type": "tool_use", "id": "c2"}, {"type": "text", "text": "x"}]

        message = assistant_message(as_response(SimpleNamespace(content=content)), "x", [Call("c2", "t")])

        assert message["content"] == content[1:]
        assert message["tool_calls"] == [{"id": "c2", "tool": "t", "arguments": {}}]

    @pytest.mark.parametrize("calls", [[Call("c1", "t")], []])
    def test_what_the_vendor_keeps_of_a_response_is_recorded_only_with_all_its_calls(self, calls: list[Call]) -> None:
        content = [{"type": "text", "text": "x"}, {"type": "tool_call", "id": "c1"}]
        response = as_response(SimpleNamespace(content=content, metadata={"vendor:response_id": "r1"}))

        assert ("metadata" in assistant_message(response, "x", calls)) is bool(calls)

    def test_without_any_block_the_text_is_the_content_even_if_it_is_empty(self) -> None:
        assert assistant_message(as_response({"content": []}), "", [])["content"] == ""
        assert assistant_message(as_response(object()), "text", [])["content"] == "text"

    def test_an_answer_to_a_call_may_name_the_tool(self) -> None:
        call = Call("c1", "t")

        assert tool_message(call, "x") == {"role": "tool", "tool_call_id": "c1", "content": "x"}
        assert tool_message(call, "x", name="t")["name"] == "t"

    def test_a_cancelled_call_says_so_in_json(self) -> None:
        text = '{"error": "Tool execution was cancelled by user", "cancelled": true, "tool": "t"}'

        assert cancelled_content("t") == text

    def test_metadata_that_is_no_dict_is_not_recorded(self) -> None:
        response = as_response(SimpleNamespace(content="hello", metadata=object()))

        assert assistant_message(response, "hello", []) == {"role": "assistant", "content": "hello"}


class TestResults:
    def test_a_result_that_is_not_json_is_made_so(self) -> None:
        result = ToolResult(output={"when": {1, 2}, "who": object})

        assert isinstance(result_content(result), str)

    def test_a_result_stays_the_object_it_is(self) -> None:
        result = ToolResult(output="x")

        assert as_tool_result(result) is result
        assert as_tool_result({"a": 1}).output == {"a": 1}

    def test_the_very_object_that_was_sent_is_not_looked_into(self) -> None:
        class Touchy(dict[str, Any]):
            def __eq__(self, other: object) -> bool:
                raise AssertionError("compared")

            __hash__ = None  # type: ignore[assignment]

        sent = Touchy(success=True)

        assert replaced_content({"result": sent, "tool_result": sent}, sent) is None

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ({"success": True, "output": [1], "error": None}, "[1]"),
            ({"success": True, "output": None}, "Success"),
            (
                {"success": True, "output": "x", "error": "not a dict"},
                '{"success": true, "output": "x", "error": "not a dict"}',
            ),
            ({"when": {1}}, '{"when": [1]}'),
            (3.5, "3.5"),
        ],
    )
    def test_another_value_becomes_text(self, value: Any, text: str) -> None:
        assert replaced_content({"tool_result": value}, {"success": True}) == text
