"""What takes more than one request: continuations, chained responses, repaired and long conversations."""

import json
from decimal import Decimal
from typing import Any

import pytest
from openai_server import RESPONSES, Said, failed

from amplifier_core import Message

RATES = {"gpt-5.5": {"input_per_m": 1, "output_per_m": 1}}


async def continued(desks: Any, *said: Said | str, **options: Any) -> tuple[Any, Any]:
    desk = desks({"api": "responses", "rates": RATES, "max_retries": 0})
    desk.server.say(*said)
    return desk, await desk.ask("Hi", **options)


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
async def test_an_answer_that_was_cut_off_is_continued_into_one_text_with_the_sum_of_usage(
    desks: Any, is_streamed: bool
) -> None:
    first = Said("Hel", thinking="hm", cut="max_output_tokens")

    desk, response = await continued(desks, first, Said("lo there."), metadata={"stream": is_streamed})

    assert [block.type for block in response.content] == ["thinking", "text"]
    assert (response.text, response.output_text, response.finish_reason) == ("Hello there.", "Hello there.", "stop")
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.cache_read_tokens) == (20, 10, 4)
    assert response.usage.cost_usd == Decimal("0.00003")
    assert response.metadata["openai:continuation_count"] == 1
    (told,) = desk.payloads("llm:response")
    assert told["continuation_count"] == 1
    assert desk.payloads("provider:incomplete_continuation") == [
        {
            "provider": "openai",
            "response_id": "resp_1",
            "reason": "max_output_tokens",
            "continuation_number": 1,
            "max_attempts": 5,
        }
    ]
    one, two = desk.bodies
    assert {key: value for key, value in two.items() if key != "input"} == {
        key: value for key, value in one.items() if key != "input"
    }
    assert [item.get("type") or item["role"] for item in two["input"]] == ["user", "reasoning", "assistant"]
    indices = [data["block_index"] for data in desk.payloads("llm:stream_block_start")]
    assert indices == ([0, 1, 2] if is_streamed else [])


async def test_an_answer_is_continued_five_times_at_most(desks: Any) -> None:
    desk, response = await continued(desks, *[Said(f"{n} ", cut="max_output_tokens") for n in range(9)])

    assert response.text == "0 1 2 3 4 5"
    assert (response.finish_reason, len(desk.bodies)) == ("length", 6)
    assert desk.bodies[-1]["input"][-1]["content"][0]["text"] == "0 1 2 3 4 "


async def test_an_answer_that_the_caller_has_capped_is_not_continued(desks: Any) -> None:
    desk, response = await continued(desks, Said("Hel", cut="max_output_tokens"), max_output_tokens=20)

    assert (response.text, response.finish_reason, len(desk.bodies)) == ("Hel", "length", 1)


async def test_an_answer_that_a_filter_has_ended_is_not_continued(desks: Any) -> None:
    desk, response = await continued(desks, Said("Hel", cut="content_filter"))

    assert (response.finish_reason, len(desk.bodies)) == ("content_filter", 1)
    assert response.metadata["openai:incomplete_reason"] == "content_filter"


async def test_what_exists_is_returned_when_a_continuation_fails(desks: Any) -> None:
    desk = desks({"api": "responses", "max_retries": 0})
    desk.server.say(Said("Hel", cut="max_output_tokens"))
    desk.server.script(RESPONSES, lambda request: desk.server.answer(request), failed(500))

    response = await desk.ask()

    assert (response.text, response.finish_reason) == ("Hel", "length")
    assert "openai:continuation_count" not in response.metadata
    assert desk.payloads("llm:response")[0]["status"] == "ok"


async def test_complete_calls_are_not_continued_past(desks: Any) -> None:
    calls = [("c1", "echo", {}), ("c2", "echo", '{"a": ')]

    desk, response = await continued(desks, Said("Hm", calls=calls, cut="max_output_tokens"))

    assert [call.id for call in response.tool_calls] == ["c1"]
    assert (response.finish_reason, len(desk.bodies)) == ("tool_calls", 1)


async def test_a_call_that_was_cut_off_is_asked_for_with_all_the_room_there_is(desks: Any) -> None:
    partial = Said("Hm.", calls=[("c1", "echo", '{"a": ')], cut="max_output_tokens")

    desk, response = await continued(desks, partial, Said(calls=[("c2", "echo", {"a": 1})]))

    assert [(call.id, call.arguments) for call in response.tool_calls] == [("c2", {"a": 1})]
    assert [body["max_output_tokens"] for body in desk.bodies] == [4096, 128000]
    assert "call" not in str(desk.bodies[1]["input"])


async def test_a_call_that_is_cut_off_again_is_given_up(desks: Any) -> None:
    partial = Said("Hm.", calls=[("c1", "echo", '{"a": ')], cut="max_output_tokens")

    desk, response = await continued(desks, partial, partial)

    assert (response.tool_calls, response.finish_reason, len(desk.bodies)) == (None, "length", 2)


# --- chaining


async def test_a_chained_conversation_sends_only_what_is_new(desks: Any) -> None:
    desk = desks({"api": "responses", "enable_response_chaining": True})
    desk.server.say(Said("I will.", thinking="hm", calls=[("c1", "echo", {})]), "Done.")
    system = {"role": "system", "content": "Be brief."}

    first = await desk.ask(system, "Look.", tools=("echo",))
    await desk.ask(
        system, "Look.", first, {"role": "tool", "content": "a", "tool_call_id": "c1"}, "And?", tools=("echo",)
    )

    one, two = desk.bodies
    assert (one["store"], one.get("previous_response_id"), "include" in one) == (True, None, False)
    assert two["previous_response_id"] == "resp_1"
    assert two["input"] == [
        {"type": "function_call_output", "call_id": "c1", "output": "a"},
        {"role": "user", "content": [{"type": "input_text", "text": "And?"}]},
    ]
    assert two["instructions"] == "Be brief."
    assert two["tools"] == one["tools"]


@pytest.mark.parametrize(
    "gone",
    [
        failed(404, "response_not_found", "Response not found."),
        failed(400, "previous_response_not_found", param="previous_response_id"),
        failed(400, None, "previous_response_id is not supported."),
        failed(400, "unsupported_value", "Not here.", param="previous_response_id"),
    ],
    ids=["404", "400", "words", "parameter"],
)
async def test_a_response_that_is_gone_is_told_and_all_is_sent_once(desks: Any, gone: Any) -> None:
    desk = desks({"api": "responses", "enable_response_chaining": "true"})
    first = await desk.ask("One.")
    desk.server.script(RESPONSES, gone)

    response = await desk.ask("One.", first, "Two.")
    await desk.ask("One.", first, "Two.")

    assert response.text == "Hello"
    assert [body.get("previous_response_id") for body in desk.bodies] == [None, "resp_1", None, None]
    assert [len(body["input"]) for body in desk.bodies] == [1, 1, 3, 3], (
        "another server than OpenAI's is not asked again"
    )
    (told,) = desk.payloads("provider:response_chain_invalidated")
    code = json.loads(gone.pieces[0])["error"]["code"]
    assert told == {"provider": "openai", "model": "gpt-5.5", "invalidated_id": "resp_1", "error_code": code}


async def test_a_chain_that_breaks_twice_is_an_error(desks: Any) -> None:
    desk = desks({"api": "responses", "enable_response_chaining": "true"})
    first = await desk.ask("One.")
    desk.server.script(RESPONSES, failed(404, "response_not_found"), failed(404, "model_not_found"))

    with pytest.raises(Exception, match="model_not_found"):
        await desk.ask("One.", first, "Two.")


@pytest.mark.parametrize(
    ("config", "given", "model", "is_stored"),
    [
        ("false", {}, "gpt-5.5", False),
        ("auto", {}, "gpt-5.5", True),
        ("auto", {}, "gpt-5-mini", False),
        ("", {}, "gpt-5.5", False),
        ("false", {"enable_response_chaining": True}, "gpt-5.5", True),
        ("true", {"enable_response_chaining": "false"}, "gpt-5.5", False),
    ],
)
async def test_responses_are_stored_only_when_chaining_is_asked_for(
    desks: Any, config: str, given: Any, model: str, is_stored: bool
) -> None:
    desk = desks({"api": "responses", "enable_response_chaining": config})

    await desk.ask(model=model, given=given)

    assert desk.bodies[0]["store"] is is_stored


async def test_a_chain_is_not_continued_when_something_had_to_be_repaired(desks: Any) -> None:
    desk = desks({"api": "responses", "enable_response_chaining": "true"})
    desk.server.say(Said(calls=[("c1", "echo", {})]))
    first = await desk.ask("One.", tools=("echo",))

    await desk.ask("One.", first, "Two.", tools=("echo",))

    body = desk.bodies[1]
    assert "previous_response_id" not in body
    assert [item.get("type") or item["role"] for item in body["input"]] == [
        "user", "function_call", "function_call_output", "assistant", "user",
    ]  # fmt: skip


async def test_a_continuation_of_a_chained_answer_sends_everything(desks: Any) -> None:
    desk = desks({"api": "responses", "enable_response_chaining": "true"})
    desk.server.say("One.", Said("Hel", cut="max_output_tokens"), "lo")
    first = await desk.ask("Hi")

    response = await desk.ask("Hi", first, "Go on.")

    assert response.text == "Hello"
    assert "previous_response_id" not in desk.bodies[2]
    assert [item["role"] for item in desk.bodies[2]["input"]] == ["user", "assistant", "user", "assistant"]


# --- repairs


async def test_an_orphaned_call_is_answered_as_failed_and_the_turn_is_closed(desk: Any) -> None:
    call = {"type": "tool_call", "id": "lost", "name": "echo", "input": {}}
    request = desk.request("Hi", {"role": "assistant", "content": [call]}, "Go on.")

    await desk.provider.complete(request)
    await desk.provider.complete(request)

    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert desk.bodies[0] == desk.bodies[1]
    assert "[SYSTEM ERROR: Tool result missing from conversation history]" in str(desk.bodies[0])
    (told,) = desk.payloads("provider:tool_sequence_repaired")
    assert told == {
        "provider": "openai",
        "repair_count": 1,
        "repairs": [{"tool_call_id": "lost", "tool_name": "echo"}],
        "synthetic_assistant_count": 1,
    }


async def test_displaced_doubled_and_stray_results_are_put_right(desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "echo", "input": {}}
    late = {"role": "tool", "tool_call_id": "c1", "content": "late"}
    again, stray = {**late, "content": "again"}, {**late, "tool_call_id": "c9", "content": "stray"}

    response = await desk.ask("Hi", {"role": "assistant", "content": [call]}, "Wait.", late, again, stray, "Go on.")

    sent = str(desk.bodies[0])
    assert response.text == "Hello", "the server, as strict as the vendor, has accepted it"
    assert sent.index("late") < sent.index("Wait.")
    assert "again" not in sent
    assert "stray" not in sent
    assert any("c9" in record.message for record in caplog.records)


# --- long conversations


async def test_the_wire_form_of_a_message_is_made_once_and_kept_with_the_message(desk: Any) -> None:
    history = [
        message
        for number in range(333)
        for message in (
            Message(role="user", content=f"Question {number}"),
            Message.model_validate(
                {
                    "role": "assistant",
                    "content": [{"type": "tool_call", "id": f"c{number}", "name": "echo", "input": {}}],
                }
            ),
            Message(role="tool", tool_call_id=f"c{number}", content=f"Result {number}"),
        )
    ]
    await desk.ask(*history, "First.")
    for message in history:
        if message.role != "assistant":
            message.content = "changed in place, which nobody does"

    await desk.ask(*history, "Second.")

    first, second = (body.get("input") or body["messages"] for body in desk.bodies)
    assert len(first) == 1000
    assert first[:-1] == second[:-1], "nothing was converted again"
    assert "Second." in str(second[-1])
    await desk.ask(*(message.model_copy() for message in history), "Third.")
    assert "changed in place" in str(desk.bodies[2]), "other objects are other messages"


async def test_neither_the_request_nor_its_messages_are_changed(desk: Any) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "echo", "input": {"a": 1}}
    request = desk.request(
        "Hi", {"role": "assistant", "content": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "a"}
    )
    before = request.model_dump()

    await desk.provider.complete(request)

    assert request.model_dump() == before
