"""What the mock answers, canned, echoed or by the keyword rule, and what is heard of it."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest
from amplifier_module_provider_mock import MockProvider

from amplifier_core import ChatRequest, Message
from amplifier_core.llm_errors import LLMTimeoutError
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from amplifier_core.testing import wait_for

STREAM = "llm:stream_"


async def test_canned_answers_rotate_from_the_first(desk: Any) -> None:
    one = desk({"responses": ["A", "B"]})

    assert [await one.text() for _ in range(3)] == ["A", "B", "A"]
    assert (one.provider.call_count, one.provider.responses) == (3, ["A", "B"])


@pytest.mark.parametrize("config", [None, {}, {"responses": []}])
async def test_without_answers_there_are_three_canned_sentences(desk: Any, config: Any) -> None:
    one = desk(config)

    texts = [await one.text() for _ in range(4)]

    assert len(set(texts)) == 3
    assert texts[3] == texts[0]


async def test_two_identical_runs_give_identical_responses_and_events(desk: Any) -> None:
    config = {
        "responses": [{"thinking": "hm", "text": "a b", "tool_calls": [{"name": "x"}]}, "c"],
        "errors": [{"every": 2, "type": "overloaded"}],
        "max_retries": 2,
        "latency_ms": 1,
    }
    runs = []
    for _ in range(2):
        one = desk(config)
        responses = [(await one.ask("Hello")).model_dump_json() for _ in range(3)]
        runs.append((responses, one.heard()))

    assert runs[0] == runs[1]


async def test_thinking_and_text_stream_word_by_word_unless_a_call_says_otherwise(desk: Any) -> None:
    one = desk({"responses": [{"thinking": "t u", "text": "v w x"}]})

    await one.ask("Hello")
    streamed = one.heard(STREAM)
    await one.ask("Hello", metadata={"stream": False})
    after_silence = one.heard(STREAM)
    await one.ask("Hello")

    def block(index: int, kind: str, words: list[str]) -> list[tuple[str, dict[str, Any]]]:
        place = {"block_index": index, "block_type": kind}
        deltas = [("llm:stream_block_delta", {**place, "sequence": n, "text": w}) for n, w in enumerate(words)]
        return [("llm:stream_block_start", place), *deltas, ("llm:stream_block_end", place)]

    assert streamed == [*block(0, "thinking", ["t ", "u "]), *block(1, "text", ["v ", "w ", "x "])]
    assert after_silence == streamed
    assert one.heard(STREAM) == streamed * 2


async def test_a_stream_that_was_held_up_catches_up(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, late = asyncio.get_running_loop(), [0.0]
    told = loop.time
    monkeypatch.setattr(loop, "time", lambda: told() + late[0])
    one = desk({"responses": ["a b c d e f"], "stream_delay_ms": 60_000})
    answering = asyncio.create_task(one.ask("Hello"))
    await wait_for(lambda: "llm:stream_block_delta" in one.names())
    assert one.names("llm:stream_block_delta") == ["llm:stream_block_delta"]

    late[0] = 3600
    await answering

    assert one.names("llm:stream_block_delta") == ["llm:stream_block_delta"] * 6


async def test_each_attempt_streams_under_one_id_of_its_own(desk: Any) -> None:
    one = desk({"responses": ["a b c"]})
    await one.ask("Hello")
    await one.ask("Hello")

    ids = [data["request_id"] for event, data in one.events if event.startswith(STREAM)]

    assert len(set(ids)) == 2
    assert ids[:5] == [ids[0]] * 5


@pytest.mark.parametrize("stream", [None, 0, "", True])
async def test_only_false_itself_turns_streaming_off(desk: Any, stream: Any) -> None:
    one = desk()
    await one.ask("Hello", metadata={"stream": stream})

    assert one.names(STREAM)


async def test_streaming_can_be_configured_away(desk: Any) -> None:
    one = desk({"use_streaming": "no"})
    await one.ask("Hello")

    assert one.names() == ["llm:request", "llm:response"]


async def test_the_assembled_text_is_the_original(desk: Any) -> None:
    text = "  two  spaces\n\tand lines \n"

    response = await desk({"responses": [text]}).ask("Hello")

    assert response.content[0].text == text


async def test_request_and_response_events_enclose_a_call(desk: Any) -> None:
    one = desk({"responses": ["hi"], "latency_ms": 2})
    await one.ask("Hello", "Again", model="other")

    usage = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30, "cost_usd": None}
    facts = {"provider": "mock", "model": "other"}
    assert one.heard()[0] == ("llm:request", {**facts, "message_count": 2})
    answer = {"status": "ok", "duration_ms": 2, "usage": usage, "stop_reason": "stop"}
    assert one.heard()[-1] == ("llm:response", {**facts, **answer})


@pytest.mark.parametrize("key", ["raw", "debug", "raw_debug"])
async def test_raw_puts_request_and_response_into_their_events(desk: Any, key: str) -> None:
    one = desk({"responses": ["hi"], key: True})
    tool_call = {"id": "1", "name": "login", "arguments": {"password": "hunter2"}}
    await one.ask("Hello", {"role": "assistant", "content": "", "tool_calls": [tool_call]}, "And?")

    request, response = (data["raw"] for event, data in one.heard("llm:re"))

    assert request["messages"][0]["content"] == "Hello"
    assert response["content"][0]["text"] == "hi"
    assert "hunter2" not in json.dumps(request)


async def test_an_answer_has_its_blocks_in_order_and_everything_it_was_given(desk: Any) -> None:
    entry = {
        "tool_calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "id": "mine"}],
        "text": "see",
        "thinking": "hm",
        "signature": "s1gn",
        "metadata": {"k": "v"},
        "usage": {"input_tokens": 1, "output_tokens": 2, "cost_usd": 0.25},
    }
    one = desk({"responses": [entry], "seed": 6})

    response: Any = await one.ask("Hello")

    assert [type(block) for block in response.content] == [ThinkingBlock, TextBlock, ToolCallBlock, ToolCallBlock]
    assert response.content[0].signature == "s1gn"
    assert [(call.id, call.name, call.arguments) for call in response.tool_calls] == [
        ("call_mock_7_0", "a", {"x": 1}),
        ("mine", "b", {}),
    ]
    assert (response.finish_reason, response.metadata) == ("tool_calls", {"k": "v"})
    assert (response.usage.total_tokens, response.usage.cost_usd) == (3, Decimal("0.25"))
    assert [block.type.value for block in response.content_blocks] == ["thinking", "text", "tool_call", "tool_call"]
    assert one.provider.parse_tool_calls(response) == response.tool_calls
    assert {"block_index": 2, "block_type": "tool_use", "name": "a"} in [data for _, data in one.heard(STREAM)]


async def test_what_becomes_of_a_response_changes_no_later_one(desk: Any) -> None:
    call = {"name": "a", "arguments": {"list": [1]}}
    config = {"responses": [{"text": "x", "tool_calls": [call], "metadata": {"list": [1]}}]}
    one = desk(config)
    first: Any = await one.ask("Hello")
    before = first.model_dump()
    before["content"][1]["id"] = before["tool_calls"][0]["id"] = before["content_blocks"][1]["id"] = "call_mock_2_0"

    first.tool_calls[0].arguments["list"].append(2)
    first.metadata["list"].append(2)
    first.usage.input_tokens = 99

    assert (await one.ask("Hello")).model_dump() == before
    assert call["arguments"] == {"list": [1]}


async def test_usage_can_be_fixed_estimated_or_given(desk: Any) -> None:
    calling = {"text": "abcd", "tool_calls": [{"name": "x", "arguments": {}}]}

    async def usage(given: Any, entry: Any) -> tuple[int, int, int]:
        found: Any = (await desk({"usage": given, "responses": [entry]}).ask("12345678")).usage
        return found.input_tokens, found.output_tokens, found.total_tokens

    assert await usage("fixed", "hi") == (10, 20, 30)
    assert await usage("fixed", calling) == (10, 5, 15)
    assert await usage("estimate", "12345") == (2, 2, 4)
    assert await usage({"input_tokens": 7, "output_tokens": 1}, "hi") == (7, 1, 8)


async def test_echo_returns_what_the_user_said_last(desk: Any) -> None:
    one = desk({"mode": "echo", "echo_prefix": "> ", "tool_trigger": None})
    reminder = {"role": "user", "content": "<system-reminder>be brief</system-reminder>"}
    injected = {"role": "user", "content": "injected", "metadata": {"ephemeral": True}}

    assert await one.text("First", "read this", reminder, injected) == "> read this"


async def test_the_keyword_rule_calls_the_offered_tool_once_a_turn_and_is_not_streamed(desk: Any, calls: Any) -> None:
    one = desk()
    prompt = {"role": "user", "content": "Please READ src/notes.md."}

    first = await one.ask(prompt, tools=("read_file",))
    call = {"id": "mock_tool_1", "tool": "read_file", "arguments": {}}
    assistant = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": "you should read this", "tool_call_id": "mock_tool_1"}
    second = await one.ask(prompt, assistant, result, tools=("read_file",))

    assert [type(block) for block in first.content] == [TextBlock, ToolCallBlock]
    assert calls(first) == [("read_file", {"file_path": "src/notes.md"})]
    assert [call.id for call in first.tool_calls or []] == ["mock_tool_1"]
    assert (first.usage.total_tokens if first.usage else None, first.finish_reason) == (15, "tool_calls")
    assert second.tool_calls is None
    assert one.names()[:2] == ["llm:request", "llm:response"]


@pytest.mark.parametrize(
    ("prompt", "tools", "expected"),
    [
        ("read it", (), [("read", {"path": "test.txt"})]),
        ("read it", ("read",), [("read", {"path": "test.txt"})]),
        ("read it", ("read_file",), [("read_file", {"file_path": "test.txt"})]),
        ("read it", ("bash",), []),
        ("already done, spread it", (), []),
        ("<system-reminder>read</system-reminder>", (), []),
    ],
)
async def test_the_keyword_rule_knows_words_and_tools(
    desk: Any, calls: Any, prompt: str, tools: tuple[str, ...], expected: Any
) -> None:
    assert calls(await desk().ask(prompt, tools=tools)) == expected


async def test_the_keyword_rule_can_be_changed_and_turned_off(desk: Any, calls: Any) -> None:
    trigger = {"pattern": "weather", "tool": "forecast", "arguments": {"place": "here"}}

    assert calls(await desk({"tool_trigger": trigger}).ask("Weather?")) == [("forecast", {"place": "here"})]
    assert calls(await desk({"tool_trigger": None}).ask("read it")) == []


async def test_a_call_that_takes_longer_than_the_request_allows_is_a_timeout(desk: Any) -> None:
    one = desk({"latency_ms": 10_000})

    with pytest.raises(LLMTimeoutError, match=r"0\.01 seconds"):
        await one.ask("Hello", timeout=0.01)

    assert one.heard("llm:response")[0][1]["error_type"] == "LLMTimeoutError"


async def test_a_cancelled_call_is_announced_and_stays_cancelled(desk: Any) -> None:
    one = desk({"responses": ["a b c d e f"], "stream_delay_ms": 10_000})
    task = asyncio.create_task(one.ask("Hello"))
    await wait_for(lambda: "llm:stream_block_delta" in one.names())

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert one.names()[-3:] == ["llm:stream_block_end", "llm:stream_aborted", "llm:response"]
    assert one.heard("llm:stream_aborted")[0][1]["error"]["type"] == "CancelledError"
    assert one.heard("llm:response")[0][1]["status"] == "cancelled"


async def test_it_works_without_a_coordinator() -> None:
    provider = MockProvider({"responses": ["hi"]}, None)

    response = await provider.complete(ChatRequest(messages=[Message(role="user", content="x")]), unknown_option=1)

    assert response.content[0].text == "hi"  # type: ignore[union-attr]
    await provider.close()
    await provider.close()
