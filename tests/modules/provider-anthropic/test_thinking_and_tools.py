"""Thinking, effort, tools, tool choice and the format of answers, as a request says them."""

import logging
from typing import Any

import pytest
from anthropic_server import MESSAGES, reply, text, thinking

from amplifier_core import ToolSpec
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_core.message_models import ResponseFormatJson, ResponseFormatJsonSchema, ResponseFormatText

MANUAL = "claude-haiku-4-5"
BOTH = "claude-sonnet-4-6"
ON = {"extended_thinking": True}
SUMMARIZED = {"type": "adaptive", "display": "summarized"}
OMITTED = {"type": "adaptive", "display": "omitted"}


def manual(budget_tokens: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget_tokens}


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


# --- thinking


@pytest.mark.parametrize(
    ("model", "config", "given", "expected"),
    [
        ("claude-sonnet-5", {}, {}, None),
        ("claude-sonnet-5", {}, {"reasoning_effort": "high"}, SUMMARIZED),
        ("claude-sonnet-5", {}, {"reasoning": {"effort": "low"}}, SUMMARIZED),
        ("claude-sonnet-5", {"reasoning_effort": "high"}, {"extended_thinking": False}, None),
        ("claude-sonnet-5", {**ON, "thinking_display": "omitted"}, {}, OMITTED),
        ("claude-sonnet-5", {}, {"reasoning_effort": "none"}, None),
        (BOTH, {}, {"reasoning_effort": "high"}, {"type": "adaptive"}),
        (BOTH, {}, {"reasoning_effort": "low"}, manual(4096)),
        (BOTH, {"thinking_type": "enabled"}, ON, manual(32000)),
        (BOTH, {}, {"reasoning_effort": "low", "thinking_type": "adaptive"}, {"type": "adaptive"}),
        (MANUAL, {}, {"reasoning_effort": "high"}, manual(32000)),
        (MANUAL, {"thinking_budget_tokens": 2000}, ON, manual(2000)),
        (MANUAL, {"thinking_budget_tokens": 2000}, {**ON, "thinking_budget_tokens": 5000}, manual(5000)),
        (MANUAL, {"thinking_budget_tokens": 10}, ON, manual(1024)),
        (MANUAL, {"thinking_budget_tokens": 900_000}, ON, manual(63_999)),
        ("claude-haiku-4-1", {"reasoning_effort": "high"}, {}, None),
        ("claude-opus-5-5", {}, {}, SUMMARIZED),
        ("claude-opus-5-5", {"extended_thinking": False}, {}, SUMMARIZED),
        ("claude-fable-5", {"reasoning_effort": "high"}, {}, None),
    ],
)
async def test_a_call_thinks_as_the_model_can_and_the_caller_wants(
    desk: Any, model: str, config: dict[str, Any], given: dict[str, Any], expected: Any
) -> None:
    body = await desk(**config).body("Hi", model=model, given=given)

    assert body.get("thinking") == expected
    if expected and "budget_tokens" in expected:
        assert body["temperature"] == 1.0
        assert body["max_tokens"] > expected["budget_tokens"]


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("claude-sonnet-5", "xhigh", {"effort": "xhigh"}),
        ("claude-fable-5", "max", {"effort": "max"}),
        (BOTH, "max", {"effort": "max"}),
        (BOTH, "xhigh", None),
        (MANUAL, "high", None),
    ],
)
async def test_the_effort_is_sent_to_models_that_know_the_level(
    desk: Any, model: str, effort: str, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    body = await desk().body("Hi", model=model, reasoning_effort=effort)

    assert body.get("output_config") == expected
    assert bool(warned(caplog)) is (expected is None)


async def test_thinking_that_is_switched_off_switches_the_effort_off_too(desk: Any) -> None:
    one = desk(extended_thinking=False, reasoning_effort="high")

    optional, always = await one.body("Hi"), await one.body("Hi", model="claude-opus-5-5")

    assert "output_config" not in optional
    assert always["output_config"] == {"effort": "high"}


async def test_a_model_that_cannot_think_is_not_asked_to(desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    body = await desk().body("Hi", model="claude-haiku-4-1", reasoning_effort="high")

    assert not {"thinking", "output_config"} & set(body)
    assert any("cannot think" in record.message and record.levelname == "INFO" for record in caplog.records)


@pytest.mark.parametrize(
    ("config", "cap", "max_tokens", "budget"),
    [
        ({"max_tokens": 100}, None, 4096 + 8192, 4096),
        ({"max_tokens": 100, "thinking_budget_buffer": 10}, None, 4106, 4096),
        ({}, None, 64_000, 4096),
        ({}, 20_000, 20_000, 4096),
        ({}, 3000, 3000, 2999),
        ({}, 1000, 1000, None),
    ],
)
async def test_thinking_leaves_room_for_the_answer_within_what_the_caller_allows(
    desk: Any, config: dict[str, Any], cap: int | None, max_tokens: int, budget: int | None
) -> None:
    body = await desk(**config).body("Hi", model=MANUAL, reasoning_effort="low", max_output_tokens=cap)

    assert body["max_tokens"] == max_tokens
    assert body.get("thinking", {}).get("budget_tokens") == budget


async def test_a_budget_that_does_not_reach_the_vendor_is_reported(desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = desk(thinking_budget_tokens=2048, extended_thinking=True)

    await one.ask("Hi")
    await one.ask("Hi", model=MANUAL)

    (message,) = warned(caplog)
    assert all(part in message for part in ("thinking_budget_tokens", "2048", "none", "adaptive"))


async def test_thinking_between_tool_calls_has_its_flag_except_for_haiku(desk: Any) -> None:
    one = desk(thinking_type="enabled", extended_thinking=True)
    for model in (BOTH, MANUAL):
        await one.ask("Hi", model=model, tools=("echo",))
    await one.ask("Hi", model=BOTH)

    flags = [asked.headers.get("anthropic-beta") for asked in one.server.asked(MESSAGES)]
    assert flags == ["interleaved-thinking-2025-05-14", None, None]
    assert [told["interleaved_thinking"] for told in one.heard("llm:request")] == [True, False, False]
    assert one.heard("llm:request")[0]["thinking_budget"] == 32000
    assert {"has_system", "thinking_enabled"} <= set(one.heard("llm:request")[0])


async def test_updates_of_the_thinking_are_for_the_user(desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = desk(extended_thinking=True, thinking_display="updates")
    one.server.script(MESSAGES, reply(thinking("Looking…"), thinking(""), text("Done.")))

    shown = await one.ask("Hi")
    await one.ask("Hi", model=BOTH)

    first, second = one.server.asked(MESSAGES)
    assert first.body["thinking"]["display"] == "updates"
    assert first.headers["anthropic-beta"] == "thinking-display-updates-2026-08-18"
    assert [block.visibility for block in shown.content[:2]] == ["user", "internal"]
    assert shown.content[0].model_extra == {"progress_update": True}
    assert "display" not in second.body["thinking"]
    assert "anthropic-beta" not in second.headers
    assert len(warned(caplog)) == 1


# --- tools


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("any", {"type": "any"}),
        ("echo", {"type": "tool", "name": "echo"}),
        ({"type": "function", "function": {"name": "echo"}}, {"type": "tool", "name": "echo"}),
        ({"type": "function", "name": "echo"}, {"type": "tool", "name": "echo"}),
        ({"type": "tool", "name": "echo"}, {"type": "tool", "name": "echo"}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"type": "auto", "disable_parallel_tool_use": True}),
        (None, None),
    ],
)
async def test_a_tool_choice_is_understood_in_every_spelling(desk: Any, choice: Any, expected: Any) -> None:
    one = desk()

    body = await one.body("Hi", tools=("echo", "other"), tool_choice=choice)
    without = await one.body("Hi", tool_choice=choice)

    assert body.get("tool_choice") == expected
    assert "tool_choice" not in without


async def test_one_call_at_a_time_can_be_asked_for(desk: Any) -> None:
    one = desk()

    plain = await one.body("Hi", tools=("echo",), given={"parallel_tool_calls": False})
    forced = await one.body("Hi", tools=("echo",), tool_choice="any", given={"parallel_tool_calls": False})

    assert plain["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert forced["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}


async def test_a_forced_tool_that_is_not_offered_is_not_forced_and_that_is_said(desk: Any) -> None:
    one = desk()

    response = await one.ask("Hi", tools=("echo",), tool_choice="gone")

    assert "tool_choice" not in one.server.bodies[0]
    assert response.degradation.actual == "auto"


async def test_a_model_that_cannot_be_forced_refuses_before_anything_is_sent(desk: Any) -> None:
    one = desk(default_model="claude-opus-5-5")

    with pytest.raises(InvalidRequestError):
        await one.ask("Hi", tools=("echo",), tool_choice="required")

    assert one.server.requests == []


async def test_a_forced_tool_switches_manual_thinking_off_for_this_call(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk(extended_thinking=True)

    forced = await one.body("Hi", model=MANUAL, tools=("echo",), tool_choice="echo")
    free = await one.body("Hi", model=MANUAL, tools=("echo",))

    assert ("thinking" in forced, "thinking" in free) == (False, True)
    assert forced["temperature"] == 0.7
    assert len(warned(caplog)) == 1


async def test_tools_of_the_vendor_are_passed_on_as_they_are(desk: Any, make_request: Any) -> None:
    one = desk()
    request = make_request("Hi", tools=("echo",))
    request.tools[0] = ToolSpec(name="echo", parameters={"properties": {}}, strict=True)
    search = ToolSpec(name="web_search", parameters={}, description="x", type="web_search_20250305", max_uses=3)
    request.tools.append(search)

    await one.provider.complete(request)

    own, native = one.server.bodies[0]["tools"]
    marked = own.pop("cache_control")
    assert own == {
        "name": "echo",
        "description": "",
        "input_schema": {"type": "object", "properties": {}},
        "strict": True,
    }
    assert marked == {"type": "ephemeral"}
    assert native == {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


# --- the format of the answer

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


@pytest.mark.parametrize("given", [SCHEMA, {"name": "answer", "schema": SCHEMA, "strict": True}])
async def test_a_schema_goes_with_the_effort_into_one_field(desk: Any, given: dict[str, Any]) -> None:
    format_ = ResponseFormatJsonSchema(json_schema=given)

    body = await desk().body("Hi", response_format=format_, reasoning_effort="high")

    assert body["output_config"] == {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}}


async def test_json_without_a_schema_is_asked_for_in_words_and_that_is_said(desk: Any) -> None:
    one = desk()

    response = await one.ask({"role": "system", "content": "Be brief."}, "Hi", response_format=ResponseFormatJson())
    plain = await one.ask("Hi", response_format=ResponseFormatText())

    (block,) = one.server.bodies[0]["system"]
    assert block["text"].startswith("Be brief.\n\n")
    assert "JSON" in block["text"]
    assert (response.degradation.requested, response.degradation.actual) == ("json", "text")
    assert plain.degradation is None
    assert "system" not in one.server.bodies[1]
