"""What comes back: blocks, events, usage and cost, streamed or not, whole or broken."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest
from amplifier_module_provider_anthropic import AnthropicChatResponse
from anthropic_server import (
    MESSAGES,
    failing_stream,
    redacted,
    reply,
    stream_of,
    text,
    thinking,
    tool_use,
)
from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from vendor_server import hang, json_answer, sse_answer, text_answer

from amplifier_core.llm_errors import (
    InvalidToolCallError,
    LLMTimeoutError,
    ProviderUnavailableError,
    StreamError,
)

ALL_FOUR = (thinking("hm, well"), redacted("xyz"), text("Hello there"), tool_use("toolu_1", "echo", {"text": "hi"}))
UNSTREAMED = {"metadata": {"stream": False}}


def result(call_id: str, content: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def stored(response: AnthropicChatResponse) -> dict[str, Any]:
    return {"role": "assistant", "content": [block.model_dump() for block in response.content]}


async def test_a_streamed_answer_of_thinking_redacted_text_and_call_is_put_together_and_told_in_order(
    desk: Any,
) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(*ALL_FOUR))

    response = await one.ask("Hi", tools=("echo",))
    again = await one.body("Hi", stored(response), result("toolu_1"), tools=("echo",))

    assert [block.type for block in response.content] == ["thinking", "redacted_thinking", "text", "tool_call"]
    assert again["messages"][1]["content"][:2] == list(ALL_FOUR[:2])
    first_id = one.heard("llm:stream_")[0]["request_id"]
    told = [(event, data) for event, data in one.recorder.events if data.get("request_id") == first_id]
    assert [(event.removeprefix("llm:stream_block_"), data["block_index"]) for event, data in told] == [
        *(("start", 0), ("delta", 0), ("delta", 0), ("end", 0), ("start", 1), ("end", 1)),
        *(("start", 2), ("delta", 2), ("delta", 2), ("delta", 2), ("end", 2), ("start", 3), ("end", 3)),
    ]
    assert told[0][1] == {"request_id": first_id, "block_index": 0, "block_type": "thinking"}
    assert told[2][1] == {
        "request_id": first_id,
        "block_index": 0,
        "block_type": "thinking",
        "sequence": 1,
        "text": "ell",
    }
    assert told[-2][1] == {"request_id": first_id, "block_index": 3, "block_type": "tool_use", "name": "echo"}
    assert set(told[-1][1]) == {"request_id", "block_index", "block_type"}


async def test_without_streaming_the_answer_is_the_same_and_nothing_is_streamed(desk: Any) -> None:
    one, quiet = desk(), desk(use_streaming=False)
    one.server.script(MESSAGES, *[reply(*ALL_FOUR)] * 3)

    streamed, asked, configured = await one.ask("Hi"), await one.ask("Hi", **UNSTREAMED), await quiet.ask("Hi")

    assert streamed.model_dump() == asked.model_dump() == configured.model_dump()
    assert [body["stream"] for body in one.server.bodies] == [True, False, False]
    assert quiet.names("llm:stream_") == []


async def test_a_response_has_visibilities_mirror_text_and_calls(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(*ALL_FOUR, text("Bye", citations=[{"type": "char_location"}])))

    response = await one.ask("Hi")

    assert [block.visibility for block in response.content[:3]] == ["internal", "internal", None]
    assert [block.type.value for block in response.content_blocks] == ["thinking", "text", "tool_call", "text"]
    assert response.text == "Hello there\n\nBye"
    assert response.content[-1].model_extra == {"citations": [{"type": "char_location"}]}
    assert [(call.id, call.name, call.arguments) for call in response.tool_calls] == [
        ("toolu_1", "echo", {"text": "hi"})
    ]


@pytest.mark.parametrize(
    "reason",
    ["end_turn", "max_tokens", "stop_sequence", "refusal", "model_context_window_exceeded", "something_new"],
)
async def test_the_stop_reason_is_the_vendors(desk: Any, reason: str) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(text("Hm."), stop_reason=reason, stop_details={"category": "x"}))

    response = await one.ask("Hi")

    assert response.finish_reason == one.heard("llm:response")[0]["stop_reason"] == reason
    assert response.metadata["anthropic"]["stop_details"] == {"category": "x"}


@pytest.mark.parametrize(
    "framing",
    [
        {"newline": "\r\n"},
        {"comments": True},
        {"piece_bytes": 1},
        {"piece_bytes": 7, "newline": "\r\n", "comments": True},
    ],
    ids=str,
)
async def test_a_stream_may_arrive_in_any_pieces(desk: Any, framing: dict[str, Any]) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(text("Grüße, 世界 🎉"), tool_use("t1", "echo", {"text": "ö"}), **framing))

    response = await one.ask("Hi")

    assert response.text == "Grüße, 世界 🎉"
    assert response.tool_calls[0].arguments == {"text": "ö"}


async def test_unknown_events_deltas_and_blocks_are_ignored_and_kept_for_the_vendor(desk: Any) -> None:
    message = {
        "model": "claude-sonnet-5",
        "content": [text("Hi"), {"type": "hologram", "data": "x"}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "stop_reason": "end_turn",
    }
    events = stream_of(message)
    events.insert(2, ("galaxy_event", {"type": "galaxy_event", "index": 0}))
    events.insert(
        5, ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta"}})
    )
    one = desk()
    one.server.script(MESSAGES, sse_answer(events))

    response = await one.ask("Hi")

    assert [block.type for block in response.content] == ["text"]
    assert response.metadata["anthropic"]["wire_content"] == message["content"]


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_block_that_makes_no_sense_is_kept_for_the_vendor_only(desk: Any, is_streamed: bool) -> None:
    odd = [{"type": ["text"], "text": "x"}, {"type": "thinking", "thinking": 7, "signature": 7}]
    message = {"id": "m", "model": "claude-sonnet-5", "content": [*odd, text("Hi")], "stop_reason": "end_turn"}
    events = [("message_start", {"type": "message_start", "message": {**message, "content": []}})]
    for index, block in enumerate(message["content"]):
        events.append(("content_block_start", {"type": "content_block_start", "index": index, "content_block": block}))
        events.append(("content_block_stop", {"type": "content_block_stop", "index": index}))
    events.append(("message_stop", {"type": "message_stop"}))
    one = desk(use_streaming=is_streamed)
    one.server.script(MESSAGES, sse_answer(events) if is_streamed else json_answer(message))

    response = await one.ask()

    assert ([block.type for block in response.content], response.text) == (["thinking", "text"], "Hi")
    assert len(response.metadata["anthropic"]["wire_content"]) == 3


async def test_a_pause_is_continued_and_the_answers_are_merged(desk: Any) -> None:
    one = desk()
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    one.server.script(MESSAGES, reply(text("One."), search, stop_reason="pause_turn"), reply(text("Two.")))

    response = await one.ask("Hi")

    assert one.server.bodies[1]["messages"][-1] == {"role": "assistant", "content": [text("One."), search]}
    assert (response.text, response.finish_reason) == ("One.\n\nTwo.", "end_turn")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (50, 178)
    assert response.usage.cost_usd == sum(one.costs)
    assert one.names("llm:re") == ["llm:request", "llm:response"]


async def test_a_pause_is_continued_five_times_at_most(desk: Any) -> None:
    one = desk()
    one.server.always = reply(text("Still at it."), stop_reason="pause_turn")

    response = await one.ask("Hi")

    assert (len(one.server.bodies), response.finish_reason) == (6, "pause_turn")


# --- tool calls that cannot be read


@pytest.mark.parametrize("raw", ['{"text": "he', '["not", "an object"]'])
async def test_a_call_that_cannot_be_read_is_asked_for_once_more(desk: Any, raw: str) -> None:
    one = desk(max_retries=5)
    broken = reply(text("Wait."), {**tool_use("t1", "echo"), "input": raw}, stop_reason="tool_use")
    one.server.script(MESSAGES, broken, reply(tool_use("t2", "echo")), broken, broken)

    recovered = await one.ask("Hi")
    with pytest.raises(InvalidToolCallError) as caught:
        await one.ask("Hi")

    assert [(call.id, call.arguments) for call in recovered.tool_calls] == [("t2", {})]
    assert (caught.value.tool_name, caught.value.raw_arguments, caught.value.retryable) == ("echo", raw, False)
    assert len(one.server.bodies) == 4
    assert len(one.names("provider:retry")) == 2
    assert one.heard("llm:response")[-1]["retryable"] is False


@pytest.mark.parametrize("raw", ['{"text": "he', ""])
async def test_a_call_that_was_cut_off_at_the_limit_is_left_out(desk: Any, raw: str) -> None:
    one = desk()
    whole, cut = tool_use("t1", "echo", {"text": "a"}), {**tool_use("t2", "echo"), "input": raw}
    one.server.script(MESSAGES, reply(text("Both:"), whole, cut, stop_reason="max_tokens"))

    response = await one.ask("Hi")

    assert (response.text, response.finish_reason) == ("Both:", "max_tokens")
    assert [call.id for call in response.tool_calls] == ["t1"]
    assert len(one.server.bodies) == 1


# --- usage and cost


USED = {
    "input_tokens": 1000,
    "cache_read_input_tokens": 4000,
    "cache_creation_input_tokens": 3000,
    "cache_creation": {"ephemeral_5m_input_tokens": 2000, "ephemeral_1h_input_tokens": 1000},
    "output_tokens": 500,
    "output_tokens_details": {"thinking_tokens": 200},
}


@pytest.mark.parametrize("options", [{}, UNSTREAMED], ids=["streamed", "whole"])
async def test_usage_with_cache_reads_and_writes_costs_what_the_price_list_says(desk: Any, options: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(text("Hm."), usage=USED))

    usage = (await one.ask("Hi", model="claude-sonnet-4-6", **options)).usage

    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5000, 500, 5500)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (4000, 3000, 200)
    assert usage.model_extra == {"cache_creation_input_tokens": 3000, "cache_read_input_tokens": 4000}
    priced = PricedUsage(
        input_tokens=8000,
        output_tokens=500,
        cache_read_tokens=4000,
        cache_write_tokens=3000,
        cache_write_1h_tokens=1000,
    )
    expected = calc_price(priced, "claude-sonnet-4-6", provider_id="anthropic").total_price
    assert usage.cost_usd == expected
    assert one.heard("llm:response")[0]["usage"] == {
        "input_tokens": 5000,
        "output_tokens": 500,
        "cache_read_tokens": 4000,
        "cache_write_tokens": 3000,
        "cost_usd": str(expected),
    }
    assert one.costs == [expected]


async def test_an_unknown_model_has_no_cost_and_configured_rates_win(desk: Any) -> None:
    rates = {"claude-sonnet-5": {"input_per_m": "3", "output_per_m": 15}}
    one = desk(rates=rates)
    one.server.always = reply(text("Hm."), usage={"input_tokens": 1_000_000, "output_tokens": 1_000_000})

    unknown = (await one.ask("Hi", model="acme-42")).usage
    known = (await one.ask("Hi")).usage

    assert (unknown.cost_usd, known.cost_usd) == (None, Decimal(18))
    assert unknown.cache_read_tokens is None


async def test_the_cost_of_a_call_can_be_estimated(desk: Any) -> None:
    provider = desk(rates={"claude-sonnet-5": {"input_per_m": "3", "output_per_m": 15}}).provider

    assert await provider.estimate_cost("claude-sonnet-5", 1_000_000, 1_000_000) == Decimal(18)
    assert await provider.estimate_cost("acme-42", 1_000_000, 1_000_000) is None


async def test_the_limits_of_the_account_are_told(desk: Any) -> None:
    one = desk()

    await one.ask("Hi")

    assert one.heard("llm:response")[0]["rate_limits"] == {
        "requests_limit": 50,
        "requests_remaining": 49,
        "requests_reset": "2026-01-01T00:00:00Z",
        "output_tokens_remaining": 8000,
    }


# --- streams that break


@pytest.mark.parametrize("count", [4, 5, 6])
async def test_a_connection_cut_in_the_middle_of_a_stream_is_a_stream_error_and_tried_again(
    desk: Any, count: int
) -> None:
    one = desk(max_retries=1)
    one.server.script(MESSAGES, reply(text("Hello there"), cut_after=count), reply(text("Better.")))

    response = await one.ask("Hi")

    assert response.text == "Better."
    (retry,) = one.heard("provider:retry")
    assert retry["error_type"] == "StreamError"
    (aborted,) = one.heard("llm:stream_aborted")
    assert aborted["error"]["type"] == "RemoteProtocolError"
    ids = list(dict.fromkeys(data["request_id"] for data in one.heard("llm:stream_")))
    assert len(ids) == 2
    assert aborted["request_id"] == ids[0]
    assert len(one.names("llm:stream_block_start")) == len(one.names("llm:stream_block_end")) == 2
    assert len(one.costs) == 2


async def test_a_stream_that_ends_without_its_end_is_a_stream_error(desk: Any) -> None:
    events = stream_of({"model": "m", "content": [text("Hi")], "usage": {"input_tokens": 1, "output_tokens": 1}})
    one = desk(max_retries=0)
    one.server.script(MESSAGES, sse_answer(events[:-1]), sse_answer([]))

    for _ in range(2):
        with pytest.raises(StreamError) as caught:
            await one.ask("Hi")
        assert caught.value.retryable


async def test_a_page_instead_of_an_answer_is_an_unavailable_vendor(desk: Any) -> None:
    one = desk(max_retries=0)
    one.server.script(MESSAGES, text_answer("<html>Maintenance</html>", 200, "text/html"))

    with pytest.raises(ProviderUnavailableError) as caught:
        await one.ask("Hi", **UNSTREAMED)

    assert (caught.value.status_code, caught.value.retryable) == (200, True)


async def test_a_failed_attempt_that_told_its_usage_counts_as_cost(desk: Any) -> None:
    one = desk(max_retries=0, rates={"m": {"input_per_m": 40_000, "output_per_m": 0}})
    one.server.script(MESSAGES, failing_stream("api_error", "no", text("Hi")))

    with pytest.raises(ProviderUnavailableError):
        await one.ask("Hi")

    assert one.costs == [Decimal(1)]


@pytest.mark.parametrize(
    ("outcome", "aborted"),
    [(hang(), []), (reply(text("Hello there"), hang_after=4), ["TimeoutError"] * 2)],
    ids=["silent", "stalled"],
)
async def test_an_attempt_that_takes_too_long_is_a_timeout_that_names_the_seconds(
    desk: Any, outcome: Any, aborted: list[str]
) -> None:
    one = desk(max_retries=1)
    await one.ask("Hi")
    one.server.script(MESSAGES, outcome, outcome)

    with pytest.raises(LLMTimeoutError, match=r"0\.1 seconds") as caught:
        await one.ask("Hi", timeout=0.1)

    assert caught.value.retryable
    assert len(one.server.bodies) == 3
    await one.server.until(lambda: all(asked.disconnected for asked in one.server.requests[1:]))
    assert [data["error"]["type"] for data in one.heard("llm:stream_aborted")] == aborted


async def test_cancelling_in_the_middle_of_a_stream_closes_the_connection_and_is_told(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(text("Hello there"), hang_after=5))
    call = asyncio.create_task(one.ask("Hi"))
    await one.server.until(lambda: one.names("llm:stream_block_delta"))

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await one.server.until(lambda: one.server.requests[0].disconnected)
    (aborted,) = one.heard("llm:stream_aborted")
    assert aborted["error"]["type"] == "CancelledError"
    assert one.heard("llm:response")[0]["status"] == "cancelled"
    assert one.names("provider:retry") == []


async def test_cancelling_while_nothing_has_come_yet_closes_the_connection(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, hang())
    call = asyncio.create_task(one.ask("Hi"))
    await one.server.until(lambda: one.server.requests)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await one.server.until(lambda: one.server.requests[0].disconnected)
    assert one.names("llm:stream_") == []


async def test_raw_events_carry_both_bodies(desk: Any) -> None:
    one = desk(raw=True)

    await one.ask("Hi")

    assert one.heard("llm:request")[0]["raw"] == one.server.bodies[0]
    assert one.heard("llm:response")[0]["raw"]["content"] == [text("Hello")]
    assert one.server.key not in json.dumps(one.recorder.events, default=str)
