"""What is asked for besides the conversation: options, tools, formats and reasoning, in the form of each API."""

import importlib
from typing import Any

import pytest
from openai_server import OpenAIServer

from amplifier_core import ChatRequest, Message, ToolSpec
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_core.message_models import ResponseFormatJson, ResponseFormatJsonSchema


async def test_options_of_the_request_win_over_keywords_and_those_over_the_configuration(desks: Any, api: str) -> None:
    desk = desks({"api": api, "temperature": 0.1, "top_p": 0.2, "max_tokens": 100, "default_model": "gpt-5.4"})

    await desk.ask()
    await desk.ask(given={"temperature": 0.3, "max_tokens": 200, "model": "gpt-5.3"})
    await desk.ask(
        temperature=0.5,
        top_p=0.6,
        max_output_tokens=300,
        model="gpt-5.5",
        given={"temperature": 0.3, "max_tokens": 200},
    )

    cap = "max_output_tokens" if api == "responses" else "max_tokens"
    told = [(body["model"], body["temperature"], body["top_p"], body[cap]) for body in desk.bodies]
    assert told == [("gpt-5.4", 0.1, 0.2, 100), ("gpt-5.3", 0.3, 0.2, 200), ("gpt-5.5", 0.5, 0.6, 300)]


async def test_without_configuration_only_what_is_needed_is_sent(responses_desk: Any, chat_desk: Any) -> None:
    await responses_desk.ask()
    await chat_desk.ask()

    responses, chat = responses_desk.bodies
    assert set(responses) == {"model", "input", "store", "max_output_tokens", "include", "stream"}
    assert set(chat) == {"model", "messages", "max_tokens", "stream", "stream_options"}
    assert (responses["model"], responses["max_output_tokens"], chat["max_tokens"]) == ("gpt-5.5", 4096, 4096)


async def test_tools_are_offered_as_functions(responses_desk: Any, chat_desk: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [
        ToolSpec(name="one", parameters=schema, description="First."),
        ToolSpec.model_validate({"name": "two", "parameters": {}, "strict": True}),
    ]
    for desk in (responses_desk, chat_desk):
        await desk.provider.complete(ChatRequest(messages=[Message(role="user", content="Hi")], tools=tools))

    responses, chat = responses_desk.bodies
    empty = {"type": "object", "properties": {}}
    assert responses["tools"] == [
        {"type": "function", "name": "one", "description": "First.", "parameters": schema, "strict": False},
        {"type": "function", "name": "two", "description": "", "parameters": empty, "strict": True},
    ]
    assert chat["tools"] == [
        {"type": "function", "function": {"name": "one", "description": "First.", "parameters": schema}},
        {"type": "function", "function": {"name": "two", "description": "", "parameters": empty, "strict": True}},
    ]
    assert responses["parallel_tool_calls"] is chat["parallel_tool_calls"] is True


async def test_tools_that_the_vendor_runs_are_passed_on_or_reported(responses_desk: Any, chat_desk: Any) -> None:
    given = {"tools": [{"type": "web_search"}, {"name": "mine", "parameters": {"type": "object"}}]}

    await responses_desk.ask(given=given)
    degraded = await chat_desk.ask(given=given)

    responses, chat = responses_desk.bodies
    assert responses["tools"][0] == {"type": "web_search"}
    assert responses["tools"][1]["name"] == "mine"
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["mine"]
    assert degraded.degradation.requested == "hosted tools"


async def test_a_tool_that_the_vendor_runs_is_sent_without_what_only_functions_have(responses_desk: Any) -> None:
    search = ToolSpec.model_validate(
        {"name": "search", "description": "Searches.", "parameters": {}, "type": "web_search", "filters": {"a": 1}}
    )

    await responses_desk.provider.complete(ChatRequest(messages=[Message(role="user", content="Hi")], tools=[search]))

    assert responses_desk.bodies[0]["tools"] == [{"type": "web_search", "filters": {"a": 1}}]


@pytest.mark.parametrize(
    ("choice", "responses", "chat"),
    [
        ("none", "none", "none"),
        ("auto", "auto", "auto"),
        ("required", "required", "required"),
        ("any", "required", "required"),
        ({"type": "any"}, "required", "required"),
        (None, "auto", None),
        ("echo", {"type": "function", "name": "echo"}, {"type": "function", "function": {"name": "echo"}}),
        (
            {"type": "tool", "name": "echo"},
            {"type": "function", "name": "echo"},
            {"type": "function", "function": {"name": "echo"}},
        ),
        (
            {"type": "function", "function": {"name": "echo"}},
            {"type": "function", "name": "echo"},
            {"type": "function", "function": {"name": "echo"}},
        ),
    ],
)
async def test_a_tool_choice_has_the_form_of_each_api(
    responses_desk: Any, chat_desk: Any, choice: Any, responses: Any, chat: Any
) -> None:
    await responses_desk.ask(tools=("echo",), tool_choice=choice)
    await chat_desk.ask(tools=("echo",), tool_choice=choice)

    assert [body.get("tool_choice") for body in responses_desk.bodies] == [responses, chat]


async def test_a_tool_choice_without_tools_is_not_sent(desk: Any) -> None:
    await desk.ask(tool_choice="required")

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(desk.bodies[0])


async def test_a_response_format_has_the_form_of_each_api(responses_desk: Any, chat_desk: Any) -> None:
    schema = {"type": "object", "properties": {}}
    formats = [
        ResponseFormatJson(),
        ResponseFormatJsonSchema(json_schema=schema, strict=True),
        ResponseFormatJsonSchema(json_schema={"name": "answer", "schema": schema}),
    ]
    for desk in (responses_desk, chat_desk):
        for wanted in formats:
            await desk.ask(response_format=wanted)

    named = [
        {"name": "response", "schema": schema, "strict": True},
        {"name": "answer", "schema": schema, "strict": False},
    ]
    assert [body["text"]["format"] for body in responses_desk.bodies[:3]] == [
        {"type": "json_object"},
        *({"type": "json_schema", **name} for name in named),
    ]
    assert [body["response_format"] for body in responses_desk.bodies[3:]] == [
        {"type": "json_object"},
        *({"type": "json_schema", "json_schema": name} for name in named),
    ]


async def test_stop_sequences_reach_the_chat_api_and_are_reported_by_the_other(
    responses_desk: Any, chat_desk: Any
) -> None:
    degraded = await responses_desk.ask(stop=["END"])
    honoured = await chat_desk.ask(stop=["END"])

    responses, chat = responses_desk.bodies
    assert "stop" not in responses
    assert degraded.degradation.requested == "stop"
    assert chat["stop"] == ["END"]
    assert honoured.degradation is None


@pytest.mark.parametrize(
    ("config", "request_effort", "given", "expected"),
    [
        ({}, None, {}, None),
        ({"reasoning_effort": "low"}, None, {}, {"effort": "low", "summary": "detailed"}),
        ({"reasoning_effort": "none", "reasoning": "high"}, None, {}, None),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, None, {}, {"effort": "high", "summary": "auto"}),
        ({"reasoning": "low", "reasoning_summary": "concise"}, None, {}, {"effort": "low", "summary": "concise"}),
        ({"reasoning_effort": "low"}, "high", {}, {"effort": "high", "summary": "detailed"}),
        ({}, "low", {"reasoning_effort": "xhigh"}, {"effort": "xhigh", "summary": "detailed"}),
        ({}, "low", {"reasoning": {"summary": "auto"}}, {"effort": "medium", "summary": "auto"}),
        ({}, None, {"extended_thinking": True}, {"effort": "high", "summary": "detailed"}),
        ({"default_model": "gpt-5.2"}, None, {}, {"summary": "auto"}),
    ],
)
async def test_reasoning_is_asked_for_by_the_first_that_says_so(
    desks: Any, api: str, config: Any, request_effort: Any, given: Any, expected: Any
) -> None:
    desk = desks({"api": api, **config})

    await desk.ask(reasoning_effort=request_effort, given=given)

    (body,) = desk.bodies
    if api == "responses":
        assert body.get("reasoning") == expected
    else:
        assert body.get("reasoning_effort") == (expected or {}).get("effort")
    assert desk.payloads("llm:request")[0]["reasoning_enabled"] is bool(
        expected if api == "responses" else (expected or {}).get("effort")
    )


async def test_an_effort_that_the_model_does_not_know_is_refused_before_anything_is_sent(desk: Any) -> None:
    with pytest.raises(InvalidRequestError, match="medium, high, xhigh"):
        await desk.ask(model="gpt-5.5-pro", reasoning_effort="low")

    assert desk.bodies == []


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [("gpt-5.5", None, True), ("gpt-5.5", "none", False), ("gpt-5-mini", None, False), ("gpt-5-mini", "low", True)],
)
async def test_the_encrypted_reasoning_is_asked_for_when_the_model_will_reason(
    responses_desk: Any, model: str, effort: str | None, expected: bool
) -> None:
    await responses_desk.ask(model=model, reasoning_effort=effort)

    assert (responses_desk.bodies[0].get("include") == ["reasoning.encrypted_content"]) is expected


async def test_a_thinking_budget_leaves_room_for_the_answer(desks: Any) -> None:
    desk = desks({"api": "responses", "thinking_budget_tokens": 5000, "thinking_budget_buffer": 500})

    await desk.ask()
    await desk.ask(given={"extended_thinking": True})

    assert [body["max_output_tokens"] for body in desk.bodies] == [4096, 5500]
    asked = desk.payloads("llm:request")
    assert [(data["thinking_enabled"], data["thinking_budget"]) for data in asked] == [(False, None), (True, 5000)]


async def test_a_tiny_cap_is_raised_to_what_the_vendor_takes(responses_desk: Any) -> None:
    await responses_desk.ask(max_output_tokens=1)

    assert responses_desk.bodies[0]["max_output_tokens"] == 16


async def test_hints_for_the_vendor_are_sent_when_they_are_configured(desks: Any) -> None:
    hints = {
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "truncation": "auto",
        "prompt_cache_retention": "24h",
    }
    desk = desks({"api": "responses", **hints, "text_verbosity": "low", "enable_state": True})

    await desk.ask(given={"max_tool_calls": 3})

    (body,) = desk.bodies
    assert {key: body[key] for key in hints} == hints
    assert body["text"] == {"verbosity": "low"}
    assert body["store"] is True
    assert body["max_tool_calls"] == 3
    assert "include" not in body


async def test_a_retention_that_the_model_rejects_is_dropped_with_a_warning(
    desks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = desks({"api": "responses", "prompt_cache_retention": "in_memory"})

    await desk.ask(model="gpt-5.5")
    await desk.ask(model="gpt-5.4")

    assert [body.get("prompt_cache_retention") for body in desk.bodies] == [None, "in_memory"]
    assert any("prompt_cache_retention" in record.message for record in caplog.records)


async def test_extra_parameters_win_over_everything_and_say_so_once(
    desks: Any, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk = desks({"api": api, "temperature": 0.1, "extra_request_params": {"temperature": 0.9, "user": "u"}})

    await desk.ask()
    await desk.ask()

    assert [(body["temperature"], body["user"]) for body in desk.bodies] == [(0.9, "u")] * 2
    assert len([record for record in caplog.records if "overrides" in record.message]) == 1


async def test_headers_and_seed_of_the_configuration_are_sent(desks: Any) -> None:
    desk = desks({"api": "chat", "headers": {"x-team": "blue"}, "seed": 7, "parallel_tool_calls": False})

    await desk.ask(tools=("echo",))

    assert desk.server.requests[0].headers["x-team"] == "blue"
    assert desk.bodies[0]["seed"] == 7
    assert desk.bodies[0]["parallel_tool_calls"] is False


async def test_openai_itself_is_sent_its_own_name_for_the_cap(server: OpenAIServer, desks: Any) -> None:
    openai = importlib.import_module("openai")
    client = openai.AsyncOpenAI(api_key=server.key, base_url=server.base_url, max_retries=0)
    desk = desks({"api": "chat", "base_url": ""}, client=client)

    await desk.ask()

    assert desk.bodies[0]["max_completion_tokens"] == 4096
    assert "max_tokens" not in desk.bodies[0]
