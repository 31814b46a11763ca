"""What comes back: every kind of output through both APIs, streamed or not, and what was heard meanwhile."""

import importlib
from decimal import Decimal
from typing import Any

import pytest
from openai_chat import chat_chunk, chat_stream
from openai_responses import responses_answer, stream_events
from openai_server import CHAT, RESPONSES, OpenAIServer, Said
from vendor_server import json_answer, sse_answer

from amplifier_core.llm_errors import InvalidToolCallError, StreamError

EVERYTHING = Said(
    "I will look.", thinking="First this.\nThen that.", calls=[("c1", "echo", {"a": 1}), ("c2", "list", {})]
)


async def both_ways(desk: Any, said: Said, **options: Any) -> tuple[Any, Any]:
    """Return the same answer streamed and not streamed."""
    desk.server.say(said, said)
    return await desk.ask(**options), await desk.ask(metadata={"stream": False}, **options)


async def test_every_block_comes_back_streamed_or_not(desk: Any) -> None:
    streamed, whole = await both_ways(desk, EVERYTHING, tools=("echo", "list"))

    for response in (streamed, whole):
        assert [block.type for block in response.content] == ["thinking", "text", "tool_call", "tool_call"]
        thinking, text, *_ = response.content
        assert (thinking.thinking, thinking.signature) == ("First this.\nThen that.", None)
        assert (thinking.visibility, text.text, response.text) == ("internal", "I will look.", "I will look.")
        assert [(call.id, call.name, call.arguments) for call in response.tool_calls] == [
            ("c1", "echo", {"a": 1}),
            ("c2", "list", {}),
        ]
        assert [block.type.value for block in response.content_blocks] == ["thinking", "text", "tool_call", "tool_call"]
        assert response.finish_reason == "tool_calls"


async def test_a_response_tells_where_it_came_from(responses_desk: Any) -> None:
    streamed, whole = await both_ways(responses_desk, EVERYTHING)

    assert [block.content for block in (streamed.content[0], whole.content[0])] == [
        ["gAAA-1", "rs_1"],
        ["gAAA-2", "rs_2"],
    ]
    assert streamed.metadata == {
        "openai:response_id": "resp_1",
        "openai:status": "completed",
        "openai:reasoning_items": ["rs_1"],
    }
    assert streamed.output_text == "I will look."


async def test_the_stream_is_told_block_by_block(desk: Any) -> None:
    desk.server.say(EVERYTHING)

    await desk.ask(tools=("echo", "list"))

    heard = [
        (event.removeprefix("llm:stream_block_"), data["block_index"], data["block_type"], data.get("name"))
        for event, data in desk.heard("llm:stream")
        if not event.endswith("delta")
    ]
    assert heard == [
        ("start", 0, "thinking", None),
        ("end", 0, "thinking", None),
        ("start", 1, "text", None),
        ("end", 1, "text", None),
        ("start", 2, "tool_use", "echo"),
        ("end", 2, "tool_use", None),
        ("start", 3, "tool_use", "list"),
        ("end", 3, "tool_use", None),
    ]
    for index, text in enumerate(("First this.\nThen that.", "I will look.")):
        deltas = [data for _, data in desk.heard("llm:stream_block_delta") if data["block_index"] == index]
        assert "".join(data["text"] for data in deltas) == text
        assert [data["sequence"] for data in deltas] == list(range(len(deltas)))
        assert all(set(data) == {"block_index", "block_type", "sequence", "text"} for data in deltas)
    assert len({data["request_id"] for name, data in desk.events if name.startswith("llm:stream")}) == 1


async def test_what_is_not_streamed_is_not_told(desks: Any, api: str) -> None:
    desk = desks({"api": api, "use_streaming": False})

    await desk.ask()

    assert desk.bodies[0]["stream"] is False
    assert desk.names("llm:stream") == []


async def test_the_cost_of_a_call_can_be_estimated(desks: Any, api: str) -> None:
    provider = desks({"api": api, "rates": {"gpt-5.5": {"input_per_m": "1", "output_per_m": 10}}}).provider

    assert await provider.estimate_cost("gpt-5.5", 1_000_000, 1_000_000) == Decimal(11)
    assert await provider.estimate_cost("acme-42", 1_000_000, 1_000_000) is None


async def test_usage_has_cache_tokens_reasoning_and_a_cost(desks: Any, api: str) -> None:
    rates = {"gpt-5.5": {"input_per_m": "1", "output_per_m": 10, "cache_read_per_m": "0.1"}}
    desk = desks({"api": api, "rates": rates})

    streamed, whole = await both_ways(desk, Said("Hi", model="gpt-5.5-2026-04-23"))

    for usage in (streamed.usage, whole.usage):
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (10, 5, 15)
        assert (usage.cache_read_tokens, usage.reasoning_tokens) == (2, 1)
        assert usage.cost_usd == Decimal("0.0000582")
    assert desk.costs == [Decimal("0.0000582")] * 2
    told = desk.payloads("llm:response")[0]
    assert told["usage"]["cost_usd"] == "0.0000582"
    assert told["usage"]["cache_read_tokens"] == 2
    assert told["rate_limits"] == {
        "requests_limit": 500,
        "requests_remaining": 499,
        "requests_reset": "120ms",
        "tokens_limit": 30000,
        "tokens_remaining": 29000,
        "tokens_reset": "6m0s",
    }
    assert desk.payloads("llm:response")[1]["rate_limits"] == told["rate_limits"]


async def test_a_known_model_costs_what_the_price_data_says_and_a_local_one_nothing_known(
    server: OpenAIServer, desks: Any
) -> None:
    openai, prices = importlib.import_module("openai"), importlib.import_module("genai_prices")
    client = openai.AsyncOpenAI(api_key=server.key, base_url=server.base_url, max_retries=0)
    vendor, local = desks({"base_url": ""}, client=client), desks({"api": "responses"})

    response = await vendor.ask()
    unknown = await vendor.ask(model="nobody-knows")
    own = await local.ask(model="qwen3")

    usage = prices.Usage(input_tokens=10, output_tokens=5, cache_read_tokens=2)
    expected = prices.calc_price(usage, "gpt-5.5", provider_id="openai").total_price
    assert response.usage.cost_usd == expected > 0
    assert unknown.usage.cost_usd is own.usage.cost_usd is None


async def test_a_response_without_usage_counts_nothing_and_costs_nothing_known(responses_desk: Any) -> None:
    responses_desk.server.say(Said("Hi", usage=None))

    usage = (await responses_desk.ask()).usage

    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (0, 0, None)


async def test_a_chat_server_that_reports_no_usage_has_it_estimated(chat_desk: Any) -> None:
    streamed, whole = await both_ways(chat_desk, Said("12345678", usage=None))

    for usage in (streamed.usage, whole.usage):
        assert usage.estimated is True
        assert (usage.output_tokens, usage.cost_usd) == (2, None)
        assert usage.input_tokens > 0


@pytest.mark.parametrize(
    ("said", "responses", "chat"),
    [
        (Said("Hi"), "stop", "stop"),
        (Said(calls=[("c1", "echo", {})]), "tool_calls", "tool_calls"),
        (Said("Hi", cut="max_output_tokens"), "length", "length"),
        (Said("Hi", cut="content_filter"), "content_filter", "content_filter"),
        (Said(refusal="I will not."), "refusal", "stop"),
    ],
    ids=["stop", "calls", "length", "filter", "refusal"],
)
async def test_the_reason_for_the_end_is_told(desk: Any, api: str, said: Said, responses: str, chat: str) -> None:
    streamed, whole = await both_ways(desk, said, max_output_tokens=100)

    expected = responses if api == "responses" else chat
    assert [streamed.finish_reason, whole.finish_reason] == [expected] * 2
    assert desk.payloads("llm:response")[0]["stop_reason"] == expected


async def test_a_refusal_is_text_and_streams_as_such(desk: Any) -> None:
    streamed, whole = await both_ways(desk, Said(refusal="I will not."))

    assert [streamed.text, whole.text] == ["I will not."] * 2
    assert [data["block_type"] for data in desk.payloads("llm:stream_block_start")] == ["text"]


@pytest.mark.parametrize(
    "framing",
    [{"piece_bytes": 1}, {"piece_bytes": 7, "newline": "\r\n"}, {"comments": True}, {"newline": "\r\n"}],
    ids=["torn", "torn and CRLF", "comments", "CRLF"],
)
async def test_a_stream_may_be_framed_in_any_way(desk: Any, framing: dict[str, Any]) -> None:
    desk.server.say(Said("Grüße, 世界 🌍", thinking="naïve", stream=framing))

    response = await desk.ask()

    assert response.text == "Grüße, 世界 🌍"
    assert response.content[0].thinking == "naïve"


async def test_raw_text_of_the_reasoning_is_used_when_there_is_no_summary(responses_desk: Any) -> None:
    server = responses_desk.server

    def reasoned(request: Any) -> Any:
        response, _ = responses_answer(server.store, request.body, Said("Hi"))
        item = {
            "type": "reasoning",
            "id": "rs_9",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "raw"}],
        }
        delta = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "raw"}
        response["output"].insert(0, item)
        events = stream_events(response)
        events.insert(3, {**delta, "item_id": "rs_9"})
        return sse_answer((event["type"], event) for event in events)

    server.script(RESPONSES, reasoned)
    response = await responses_desk.ask()

    assert response.content[0].thinking == "raw"
    assert responses_desk.payloads("llm:stream_block_delta")[0]["text"] == "raw"


async def test_a_server_whose_last_event_has_no_output_is_understood(responses_desk: Any) -> None:
    def answer(request: Any) -> Any:
        response, _ = responses_answer(responses_desk.server.store, request.body, Said("Hi"))
        events = stream_events(response)
        events[-1] = {**events[-1], "response": {**response, "output": []}}
        return sse_answer((event["type"], event) for event in events)

    responses_desk.server.script(RESPONSES, answer)

    assert (await responses_desk.ask()).text == "Hi"


async def test_a_server_that_does_not_stream_is_accepted(chat_desk: Any) -> None:
    message = {"role": "assistant", "content": "Hi"}
    chat_desk.server.script(CHAT, json_answer({"choices": [{"index": 0, "message": message, "finish_reason": None}]}))

    response = await chat_desk.ask()

    assert (response.text, response.finish_reason) == ("Hi", "stop")
    assert chat_desk.names("llm:stream") == []


# --- what compatible servers do


async def test_a_chat_stream_with_interleaved_calls_reasoning_and_usage_is_put_together(chat_desk: Any) -> None:
    def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
        return {"tool_calls": [{"index": index, "function": function, **more}]}

    events = chat_stream(
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "I will."},
        piece(0, "", id="a", type="function", name="one"),
        piece(1, '{"x":', id="b", type="function", name="two"),
        piece(0, '{"y"'),
        piece(1, "1}"),
        piece(0, ":2}"),
        finish="tool_calls",
        done=False,
    )
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    chat_desk.server.script(
        CHAT, sse_answer([*events, (None, {**chat_chunk({}), "choices": [], "usage": usage}), (None, "[DONE]")])
    )

    response = await chat_desk.ask()

    assert [block.type for block in response.content] == ["thinking", "text", "tool_call", "tool_call"]
    assert [(call.id, call.name, call.arguments) for call in response.tool_calls] == [
        ("a", "one", {"y": 2}),
        ("b", "two", {"x": 1}),
    ]
    assert (response.usage.input_tokens, response.usage.output_tokens) == (9, 3)
    starts = [(data["block_index"], data["block_type"]) for data in chat_desk.payloads("llm:stream_block_start")]
    ends = [(data["block_index"], data["block_type"]) for data in chat_desk.payloads("llm:stream_block_end")]
    assert starts == ends == [(0, "thinking"), (1, "text"), (2, "tool_use"), (3, "tool_use")]


@pytest.mark.parametrize(
    ("piece", "call_id", "arguments"),
    [
        ({"id": "a", "function": {"name": "echo", "arguments": '{"a":1}'}}, "a", {"a": 1}),
        ({"index": 0, "function": {"name": "echo", "arguments": {"a": 1}}}, "", {"a": 1}),
        ({"index": 0, "id": "", "function": {"name": "echo", "arguments": None}}, "", {}),
        ({"index": 0, "id": "a", "function": {"name": "echo", "arguments": '```json\n{"a":1,}\n```'}}, "a", {"a": 1}),
        ({"index": 0, "id": "a", "function": {"name": "echo", "arguments": '{"a":["x,}",],}'}}, "a", {"a": ["x,}"]}),
    ],
    ids=["no index", "object, no id", "nothing", "fenced", "trailing commas"],
)
async def test_a_call_in_any_form_that_can_be_read_is_taken(
    chat_desk: Any, piece: dict[str, Any], call_id: str, arguments: dict[str, Any]
) -> None:
    chat_desk.server.script(CHAT, sse_answer(chat_stream({"tool_calls": [piece]}, done=False)))

    (call,) = (await chat_desk.ask()).tool_calls

    assert call.id == call_id or (call.id.startswith("call_") and len(call.id) == 29)
    assert (call.name, call.arguments) == ("echo", arguments)


async def test_a_new_id_at_a_known_index_is_a_new_call_and_a_repeated_name_is_one_name(chat_desk: Any) -> None:
    def piece(call_id: str, arguments: str) -> dict[str, Any]:
        function = {"name": "echo", "arguments": arguments}
        return {"tool_calls": [{"index": 0, "id": call_id, "function": function}]}

    chat_desk.server.script(CHAT, sse_answer(chat_stream(piece("a", "{"), piece("a", "}"), piece("b", "{}"))))

    response = await chat_desk.ask()

    assert [(call.id, call.name) for call in response.tool_calls] == [("a", "echo"), ("b", "echo")]


async def test_reasoning_under_its_other_name_and_further_choices_are_understood(chat_desk: Any) -> None:
    other = chat_chunk({"content": "not this"})
    other["choices"][0]["index"] = 1
    events = chat_stream({"reasoning": "hm", "reasoning_content": "hm"}, {"content": "Hi"})
    chat_desk.server.script(CHAT, sse_answer([(None, other), *events]))

    response = await chat_desk.ask()

    assert [getattr(block, "thinking", None) or block.text for block in response.content] == ["hm", "Hi"]


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_think_tags_at_the_beginning_become_thinking(chat_desk: Any, size: int) -> None:
    text = "<think>\nhm, a < b</think>\n\nIt is <think>b</think>."
    deltas = [{"content": text[start : start + size]} for start in range(0, len(text), size)]
    chat_desk.server.script(CHAT, sse_answer(chat_stream(*deltas)))

    response = await chat_desk.ask()

    assert [block.type for block in response.content] == ["thinking", "text"]
    assert response.content[0].thinking == "hm, a < b"
    assert response.text == "It is <think>b</think>."


async def test_think_tags_can_be_left_alone(desks: Any) -> None:
    desk = desks({"api": "chat", "parse_think_tags": False})
    desk.server.say("<think>a</think>b")

    assert (await desk.ask()).text == "<think>a</think>b"


async def test_a_chat_stream_may_end_without_its_last_line_but_not_without_a_reason(desks: Any) -> None:
    desk = desks({"api": "chat", "max_retries": 0})
    desk.server.script(
        CHAT,
        sse_answer(chat_stream({"content": "Hi"}, done=False)),
        sse_answer(chat_stream({"content": "Hi"}, finish=None, done=False)),
    )

    assert (await desk.ask()).text == "Hi"
    with pytest.raises(StreamError):
        await desk.ask()


async def test_a_chat_stream_that_says_it_is_done_needs_no_reason(desks: Any) -> None:
    desk = desks({"api": "chat", "max_retries": 0})
    call = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "echo", "arguments": "{}"}}]}
    desk.server.script(
        CHAT, *(sse_answer(chat_stream({"content": "Hi"}, *calls, finish=None)) for calls in ((), (call,)))
    )

    assert [(await desk.ask()).finish_reason for _ in range(2)] == ["stop", "tool_calls"]


# --- arguments that nobody can read


async def test_a_call_that_cannot_be_read_is_asked_for_once_more(desk: Any) -> None:
    broken, good = (Said(calls=[("c1", "echo", arguments)]) for arguments in ("{not json}", {"a": 1}))
    desk.server.say(broken, good)

    response = await desk.ask(tools=("echo",))

    assert [call.arguments for call in response.tool_calls] == [{"a": 1}]
    (retry,) = desk.payloads("provider:retry")
    assert (retry["error_type"], retry["attempt"]) == ("InvalidToolCallError", 1)
    assert len(desk.names("llm:request")) == len(desk.names("llm:response")) == 1


async def test_text_that_was_shown_before_a_call_that_cannot_be_read_is_taken_back(desk: Any) -> None:
    desk.server.say(Said("Wait.", calls=[("c1", "echo", "{not json}")]), Said("Done."))

    await desk.ask(tools=("echo",))

    ((_, aborted),) = desk.heard("llm:stream_aborted")
    shown = [data["text"] for data in desk.payloads("llm:stream_block_delta") if data["text"]]
    assert aborted["error"]["type"] == "InvalidToolCallError"
    assert "".join(shown) == "Wait.Done."


@pytest.mark.parametrize("arguments", ["{not json}", "[1]", '"text"'])
async def test_a_call_that_cannot_be_read_twice_is_an_error_and_never_made(desk: Any, arguments: str) -> None:
    broken = Said(calls=[("c1", "echo", arguments)])
    desk.server.say(broken, broken)

    with pytest.raises(InvalidToolCallError) as caught:
        await desk.ask(tools=("echo",))

    assert (caught.value.tool_name, caught.value.raw_arguments) == ("echo", arguments)
    assert len(desk.bodies) == 2


async def test_a_chat_call_that_was_cut_off_is_dropped(chat_desk: Any) -> None:
    chat_desk.server.say(Said("Well", calls=[("c1", "echo", '{"a": ')], cut="max_output_tokens"))

    response = await chat_desk.ask(tools=("echo",))

    assert (response.text, response.tool_calls, response.finish_reason) == ("Well", None, "length")
