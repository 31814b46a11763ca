"""Building requests: every stored message converted once, none of them able to spoil the rest."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core import ChatRequest, ChatResponse, Message, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock
from amplifier_kit.loops.requests import RequestBuilder
from amplifier_kit.messages.conversation import assistant_message, read_calls


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def contents(messages: list[Message]) -> list[Any]:
    return [message.content for message in messages]


class TestResponses:
    @pytest.mark.parametrize(
        "content",
        [
            [TextBlock(text="All is well.")],
            [TextBlock(text="Looking."), ToolCallBlock(id="call_1", name="look", input={"place": 1})],
            [ThinkingBlock(thinking="Hm."), ToolCallBlock(id="call_1", name="look", input={})],
        ],
    )
    def test_what_records_a_response_converts_to_the_same_when_it_is_expected(self, content: list[Any]) -> None:
        calls = [ToolCall(id="call_1", name="look", arguments={})] if len(content) > 1 else None
        response = ChatResponse(content=content, tool_calls=calls)
        stored = assistant_message(response, "", read_calls(response.tool_calls))
        builder = RequestBuilder()

        builder.expect(stored, response)

        expected, validated = builder.convert([stored]), RequestBuilder().convert([dict(stored)])
        assert [message.model_dump() for message in expected] == [message.model_dump() for message in validated]
        assert expected[0].model_fields_set == validated[0].model_fields_set

    def test_a_message_that_says_something_else_is_read_by_itself(self) -> None:
        response = ChatResponse(content=[TextBlock(text="One"), TextBlock(text="Two")])
        stored = {"role": "assistant", "content": [{"type": "text", "text": "Only one"}]}
        builder = RequestBuilder()

        builder.expect(stored, response)

        assert contents(builder.convert([stored])) == [[TextBlock(text="Only one")]]


class TestMessages:
    def test_the_same_objects_are_converted_once(self) -> None:
        builder, stored = RequestBuilder(), [user("one"), user("two")]

        first = builder.convert(stored)
        second = builder.convert([*stored, user("three")])

        assert [a is b for a, b in zip(first, second, strict=False)] == [True, True]
        assert contents(second) == ["one", "two", "three"]

    def test_they_are_found_again_when_the_view_changes_in_the_middle(self) -> None:
        builder, stored = RequestBuilder(), [user(str(number)) for number in range(20)]
        before = builder.convert(stored)

        after = builder.convert([stored[0], user("cut"), *stored[10:]])

        assert contents(after) == ["0", "cut", *(str(number) for number in range(10, 20))]
        assert after[0] is before[0]
        assert all(a is b for a, b in zip(after[2:], before[10:], strict=True))

    def test_what_comes_and_goes_at_the_end_does_not_disturb_the_rest(self) -> None:
        builder, stored = RequestBuilder(), [user(str(number)) for number in range(5)]
        first = builder.convert([*stored, user("passing note")])

        second = builder.convert([*stored, user("5")])

        assert all(a is b for a, b in zip(first[:5], second[:5], strict=True))
        assert contents(second)[-1] == "5"

    def test_a_context_that_hands_out_copies_gets_the_right_messages_too(self) -> None:
        builder = RequestBuilder()
        builder.convert([user("one"), user("two")])

        assert contents(builder.convert([user("one"), user("changed"), user("three")])) == ["one", "changed", "three"]

    def test_requests_do_not_share_their_lists(self) -> None:
        builder, stored, tools = RequestBuilder(), [user("one")], {"t": SimpleNamespace()}
        first = builder.build(stored, tools)

        first.messages.clear()
        first.tools.clear()  # type: ignore[union-attr]
        second = builder.build(stored, tools)

        assert (len(second.messages), len(second.tools or [])) == (1, 1)

    def test_many_requests_leave_no_heap_of_conversions(self) -> None:
        builder, kept = RequestBuilder(), user("kept")
        first = builder.convert([kept])

        for number in range(2000):
            builder.convert([kept, user(str(number))])

        assert builder.convert([kept])[0] is first[0]

    @given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8))
    def test_whatever_views_come_in_whatever_order_each_is_converted_faithfully(self, views: list[list[int]]) -> None:
        builder, stored = RequestBuilder(), [user(str(number)) for number in range(10)]

        for view in views:
            assert contents(builder.convert([stored[number] for number in view])) == [str(number) for number in view]


class TestOddMessages:
    @pytest.mark.parametrize(
        ("message", "content"),
        [
            ({"role": "assistant", "content": None}, ""),
            ({"role": "assistant"}, ""),
            ({"role": "user", "content": [{"type": "hologram", "x": 1}]}, ['{"type": "hologram", "x": 1}']),
            ({"role": "user", "content": ["text"]}, ["text"]),
            ({"role": "user", "content": [{"type": "text", "text": "a"}, TextBlock(text="b")]}, ["a", "b"]),
        ],
    )
    def test_content_of_any_kind_is_sent(self, message: dict[str, Any], content: Any) -> None:
        (converted,) = RequestBuilder().convert([message])

        texts = (
            [getattr(block, "text", None) for block in converted.content]
            if content and isinstance(content, list)
            else converted.content
        )
        assert texts == content

    @pytest.mark.parametrize(
        ("message", "role"),
        [
            ({"role": "user", "content": {"secret": 1}}, "user"),
            ({"role": "user", "content": [{"type": "text"}]}, "user"),
            ({"role": "user", "content": "x", "name": 7}, "user"),
            ({"role": "tool", "content": 7, "tool_call_id": 8}, "tool"),
        ],
    )
    def test_a_malformed_message_is_sent_as_text_with_a_warning_that_keeps_its_secret(
        self, message: dict[str, Any], role: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        first, second = RequestBuilder().convert([user("fine"), message])

        assert (first.content, second.role, type(second.content)) == ("fine", role, str)
        (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert warning.startswith("stored message 1 ")
        assert "secret" not in warning

    @pytest.mark.parametrize("message", [{"content": "x"}, {"role": "critic", "content": "x"}, "text", None, 7])
    def test_an_unusable_one_is_left_out(self, message: Any, caplog: pytest.LogCaptureFixture) -> None:
        builder, stored = RequestBuilder(), [user("before"), message, user("after")]

        assert contents(builder.convert(stored)) == ["before", "after"]
        assert contents(builder.convert([*stored, user("later")])) == ["before", "after", "later"]
        warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert warnings == ["stored message 1 is unusable and left out of the request"]

    def test_a_malformed_message_keeps_what_pairs_it_with_others(self) -> None:
        calls = [{"id": "c1", "tool": "t", "arguments": {}}]
        stored = [
            {"role": "assistant", "content": {"odd": 1}, "tool_calls": calls},
            {"role": "tool", "content": {"odd": 2}, "tool_call_id": "c1"},
        ]

        call, result = RequestBuilder().convert(stored)

        assert call.tool_calls == calls  # type: ignore[attr-defined]
        assert result.tool_call_id == "c1"

    def test_a_message_that_is_a_model_already_is_taken_as_it_is(self) -> None:
        message = Message(role="user", content="x")

        assert RequestBuilder().convert([message])[0] is message

    def test_everything_else_a_message_carries_is_sent(self) -> None:
        stored = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}], "metadata": {"a": 1}, "extra": 2}

        (message,) = RequestBuilder().convert([stored])

        assert message.model_dump(exclude_none=True) == stored


class TestOptions:
    def test_options_that_are_none_are_left_to_the_provider(self) -> None:
        request = RequestBuilder().build([user("x")], {}, reasoning_effort=None, timeout=None)

        assert request.model_dump(exclude_unset=True) == {
            "messages": [Message(**user("x")).model_dump(exclude_unset=True)]
        }

    def test_others_are_in_every_request(self) -> None:
        builder = RequestBuilder()

        requests = [builder.build([user("x")], {}, timeout=timeout) for timeout in (1.0, 1.0, None, 2.0)]

        assert [request.timeout for request in requests] == [1.0, 1.0, None, 2.0]
        assert all(isinstance(request, ChatRequest) for request in requests)


class TestTools:
    def test_a_specification_is_made_of_what_the_tool_says_now(self) -> None:
        tool: Any = SimpleNamespace(description="Looks.", input_schema={"type": "object", "required": ["a"]})
        builder = RequestBuilder()

        (first,) = builder.tool_specs({"look": tool})
        (same,) = builder.tool_specs({"look": tool})
        tool.description = "Looks twice."
        (changed,) = builder.tool_specs({"see": tool})

        assert (first.name, first.description, first.parameters) == ("look", "Looks.", tool.input_schema)
        assert same is first
        assert (changed.name, changed.description) == ("see", "Looks twice.")

    def test_another_tool_in_the_same_place_is_specified_anew_unless_it_says_the_same(self) -> None:
        def tool(description: str, **properties: Any) -> Any:
            return SimpleNamespace(description=description, input_schema={"type": "object", "properties": properties})

        builder = RequestBuilder()

        (first,) = builder.tool_specs({"look": tool("Looks.", place={})})
        (equal,) = builder.tool_specs({"look": tool("Looks.", place={})})
        (other,) = builder.tool_specs({"look": tool("Looks.", time={})})
        (described,) = builder.tool_specs({"look": tool("Looks away.", time={})})

        assert equal is first
        assert other.parameters == {"type": "object", "properties": {"time": {}}}
        assert (described.description, described.parameters) == ("Looks away.", other.parameters)

    def test_a_tool_may_have_no_description(self) -> None:
        (spec,) = RequestBuilder().tool_specs({"t": SimpleNamespace(description=None)})

        assert spec.description == ""
