"""Requests, responses and what they are made of."""

import copy
import json
import math
import pickle
import threading
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from amplifier_core.message_models import (
    ChatRequest,
    ChatResponse,
    ContentBlockUnion,
    Degradation,
    ImageBlock,
    Message,
    ReasoningBlock,
    RedactedThinkingBlock,
    ResponseFormat,
    ResponseFormatJson,
    ResponseFormatJsonSchema,
    ResponseFormatText,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    Usage,
)

BLOCKS: list[tuple[type[BaseModel], dict[str, Any], dict[str, Any]]] = [
    (TextBlock, {"type": "text", "text": "hi"}, {}),
    (ThinkingBlock, {"type": "thinking", "thinking": "hm"}, {"signature": None, "content": None}),
    (RedactedThinkingBlock, {"type": "redacted_thinking", "data": "x"}, {}),
    (ToolCallBlock, {"type": "tool_call", "id": "1", "name": "bash", "input": {"command": "ls"}}, {}),
    (ToolResultBlock, {"type": "tool_result", "tool_call_id": "1", "output": ["a", {"b": 1}]}, {}),
    (ImageBlock, {"type": "image", "source": {"type": "url", "url": "x"}}, {}),
    (ReasoningBlock, {"type": "reasoning", "content": ["a"], "summary": []}, {}),
]
OPEN: list[tuple[type[BaseModel], dict[str, Any]]] = [
    *((block_class, data) for block_class, data, _ in BLOCKS),
    (Message, {"role": "user", "content": "hi"}),
    (ToolSpec, {"name": "bash", "parameters": {}}),
    (ToolCall, {"id": "1", "name": "bash", "arguments": {}}),
    (Degradation, {"requested": "a", "actual": "b", "reason": "c"}),
    (Usage, {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    (ChatRequest, {"messages": []}),
    (ChatResponse, {"content": []}),
]
USAGE: dict[str, Any] = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
each_block = pytest.mark.parametrize(("block_class", "data", "defaults"), BLOCKS)


@each_block
def test_a_block_is_found_by_its_type(
    block_class: type[BaseModel], data: dict[str, Any], defaults: dict[str, Any]
) -> None:
    block: BaseModel = TypeAdapter(ContentBlockUnion).validate_python(data)

    assert type(block) is block_class
    assert block.model_dump() == {**data, **defaults, "visibility": None}


@each_block
def test_a_block_knows_its_type(block_class: type[BaseModel], data: dict[str, Any], defaults: dict[str, Any]) -> None:
    fields = {name: value for name, value in data.items() if name != "type"}

    assert block_class(**fields).model_dump() == {**data, **defaults, "visibility": None}
    with pytest.raises(ValidationError):
        block_class(**fields, type="other")


@each_block
def test_every_field_of_a_block_is_required(
    block_class: type[BaseModel], data: dict[str, Any], defaults: dict[str, Any]
) -> None:
    for missing in data.keys() - {"type"}:
        with pytest.raises(ValidationError):
            block_class(**{name: value for name, value in data.items() if name != missing})


@pytest.mark.parametrize("visibility", ["internal", "developer", "user", None])
def test_a_block_may_be_for_some_eyes_only(visibility: Any) -> None:
    assert TextBlock(text="hi", visibility=visibility).visibility == visibility


def test_there_is_no_other_visibility() -> None:
    with pytest.raises(ValidationError):
        TextBlock(text="hi", visibility="public")  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "data"), OPEN)
def test_fields_of_a_vendor_are_kept(model: type[BaseModel], data: dict[str, Any]) -> None:
    instance = model(**data, vendor_field=[1])

    assert instance.vendor_field == [1]  # type: ignore[attr-defined]
    assert model.model_validate_json(instance.model_dump_json()) == instance


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "function", "tool"])
def test_a_message_has_a_role_and_content(role: Any) -> None:
    assert Message(role=role, content="hi").model_dump() == {
        "role": role,
        "content": "hi",
        "name": None,
        "tool_call_id": None,
        "metadata": None,
    }


@pytest.mark.parametrize(
    "data",
    [
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "robot", "content": ""},
        {"role": "user", "content": [{"type": "video"}]},
    ],
)
def test_a_message_without_a_known_role_or_content_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Message.model_validate(data)


def test_an_empty_list_is_content() -> None:
    assert Message(role="assistant", content=[]).content == []


def test_the_arguments_of_a_tool_call_can_be_read_as_input_but_are_dumped_once() -> None:
    call = ToolCall(id="1", name="bash", arguments={"command": "ls"})

    assert call.input is call.arguments
    assert "input" not in call.model_dump()
    with pytest.raises(AttributeError):
        call.input = {}  # type: ignore[misc]


def test_arguments_as_text_are_refused() -> None:
    with pytest.raises(ValidationError):
        ToolCall(id="1", name="bash", arguments='{"command": "ls"}')  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "format_class"),
    [
        ({"type": "text"}, ResponseFormatText),
        ({"type": "json"}, ResponseFormatJson),
        ({"type": "json_schema", "json_schema": {"type": "object"}}, ResponseFormatJsonSchema),
    ],
)
def test_a_response_format_is_found_by_its_type(data: dict[str, Any], format_class: type[ResponseFormat]) -> None:
    assert type(ChatRequest(messages=[], response_format=data).response_format) is format_class  # type: ignore[arg-type]


def test_a_schema_is_given_as_json_schema_and_sent_as_schema() -> None:
    response_format = ResponseFormatJsonSchema(json_schema={"type": "object"})

    assert response_format.model_dump() == {"type": "json_schema", "json_schema": {"type": "object"}, "strict": None}
    assert response_format.model_dump(by_alias=True)["schema"] == {"type": "object"}
    with pytest.raises(ValidationError):
        ResponseFormatJsonSchema.model_validate({"schema": {"type": "object"}})


def test_a_request_needs_messages_only() -> None:
    assert ChatRequest(messages=[]).model_dump() == {
        "messages": [],
        "tools": None,
        "response_format": None,
        "temperature": None,
        "top_p": None,
        "max_output_tokens": None,
        "conversation_id": None,
        "stream": False,
        "metadata": None,
        "model": None,
        "tool_choice": None,
        "stop": None,
        "reasoning_effort": None,
        "timeout": None,
    }


def test_a_response_needs_content_only() -> None:
    assert ChatResponse(content=[]).model_dump() == {
        "content": [],
        "tool_calls": None,
        "usage": None,
        "degradation": None,
        "finish_reason": None,
        "metadata": None,
    }


def test_models_inside_models_are_kept_as_the_same_objects() -> None:
    block, call = TextBlock(text="hi"), ToolCall(id="1", name="bash", arguments={})
    usage, message = Usage(**USAGE), Message(role="user", content=[block])
    tool = ToolSpec(name="bash", parameters={})

    request = ChatRequest(messages=[message], tools=[tool])
    response = ChatResponse(content=[block], tool_calls=[call], usage=usage)

    assert request.messages[0] is message
    assert message.content[0] is block
    assert request.tools is not None
    assert request.tools[0] is tool
    assert response.content[0] is block
    assert response.tool_calls is not None
    assert response.tool_calls[0] is call
    assert response.usage is usage


def test_models_inside_models_are_not_validated_again() -> None:
    message = Message(role="user", content="hi")
    message.content = 5  # type: ignore[assignment]

    assert ChatRequest(messages=[message]).messages[0].content == 5  # type: ignore[comparison-overlap]


def test_a_provider_may_extend_the_response() -> None:
    class Note(BaseModel):
        page: int

    class MyResponse(ChatResponse):
        content_blocks: list[Note] | None = None
        text: str | None = None

    response = MyResponse(content=[{"type": "text", "text": "hi"}], content_blocks=[{"page": "1"}], text="hi")  # type: ignore[list-item]

    assert isinstance(response, ChatResponse)
    assert response.content == [TextBlock(text="hi")]
    assert response.content_blocks == [Note(page=1)]
    assert {*MyResponse.model_fields} == {*ChatResponse.model_fields, "content_blocks", "text"}
    assert MyResponse.model_json_schema()["properties"].keys() == MyResponse.model_fields.keys()
    assert MyResponse.model_validate_json(response.model_dump_json()) == response


def test_a_model_may_be_used_for_the_first_time_by_many_threads_at_once() -> None:
    outcomes = list[object]()

    def use(request_class: type[ChatRequest], start: threading.Barrier) -> None:
        start.wait()
        try:
            message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
            outcomes.append(request_class.model_validate({"messages": [message], "number": "5"}).model_dump()["number"])
        except Exception as error:  # noqa: BLE001 - reported by the assertion
            outcomes.append(error)

    for _ in range(10):

        class Fresh(ChatRequest):
            number: int

        start = threading.Barrier(6)
        threads = [threading.Thread(target=use, args=(Fresh, start)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert outcomes == [5] * 60


@pytest.mark.parametrize(("model", "data"), OPEN)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_models_survive_copying_and_pickling(model: type[BaseModel], data: dict[str, Any], duplicate: Any) -> None:
    instance = model(**data, vendor_field=[1])

    twin = duplicate(instance)

    assert twin == instance
    assert twin is not instance


def test_what_is_unknown_about_usage_is_none() -> None:
    assert Usage(**USAGE).model_dump() == {
        **USAGE,
        "reasoning_tokens": None,
        "cache_read_tokens": None,
        "cache_write_tokens": None,
        "cost_usd": None,
    }


@pytest.mark.parametrize("cost", [0.047, math.nan, math.inf, 1.0])
def test_a_cost_as_float_is_refused(cost: float) -> None:
    with pytest.raises(ValidationError) as refused:
        Usage(**USAGE, cost_usd=cost)  # type: ignore[arg-type]

    expected = "cost_usd must be Decimal, not float. Use Decimal('0.047') — floats lose monetary precision."
    assert expected in str(refused.value)


def test_a_cost_as_a_float_in_json_is_refused() -> None:
    with pytest.raises(ValidationError, match="must be Decimal, not float"):
        Usage.model_validate_json(json.dumps({**USAGE, "cost_usd": 0.5}))


@pytest.mark.parametrize("cost", [True, False, "NaN", "Infinity", Decimal("NaN"), Decimal("-Infinity"), "much", []])
def test_a_cost_that_is_no_finite_number_is_refused(cost: Any) -> None:
    with pytest.raises(ValidationError):
        Usage(**USAGE, cost_usd=cost)


@pytest.mark.parametrize(
    ("cost", "exact"), [(Decimal("0.10"), "0.10"), (3, "3"), ("0.0000001", "1E-7"), (0, "0"), (None, None)]
)
def test_a_cost_is_a_decimal_and_dumped_as_text(cost: Any, exact: str | None) -> None:
    usage = Usage(**USAGE, cost_usd=cost)

    assert usage.cost_usd == (None if exact is None else Decimal(exact))
    assert usage.model_dump()["cost_usd"] == exact
    assert usage.model_dump(mode="json")["cost_usd"] == exact
    assert json.loads(usage.model_dump_json())["cost_usd"] == exact


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_cost_keeps_its_precision_on_every_way_out_and_back(cost: Decimal) -> None:
    usage = Usage(**USAGE, cost_usd=cost)

    for twin in (Usage.model_validate(usage.model_dump()), Usage.model_validate_json(usage.model_dump_json())):
        assert twin.cost_usd is not None
        assert twin.cost_usd.as_tuple() == cost.as_tuple()
