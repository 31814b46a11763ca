"""The loopback server itself: it speaks as the vendor's own client expects, and refuses what the vendor refuses."""

import importlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai_server import KEY, OpenAIServer, Said

openai = importlib.import_module("openai")

EVERYTHING = Said("I will look.", thinking="hm", calls=[("c1", "echo", {"a": 1})])
USER = {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "echo", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "a"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "a"}


@pytest.fixture
async def client(server: OpenAIServer) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=server.base_url, max_retries=0) as client:
        yield client


async def test_the_vendors_client_reads_its_responses(server: OpenAIServer, client: Any) -> None:
    server.say(EVERYTHING, EVERYTHING)

    response = await client.responses.create(model="gpt-5.5", input=[USER])
    events = [event async for event in await client.responses.create(model="gpt-5.5", input=[USER], stream=True)]

    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output_text == "I will look."
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert events[-1].response.output_text == "I will look."


async def test_the_vendors_client_reads_its_completions(server: OpenAIServer, client: Any) -> None:
    server.say(EVERYTHING, EVERYTHING)
    messages = [{"role": "user", "content": "Hi"}]

    whole = await client.chat.completions.create(model="gpt-5.5", messages=messages)
    async with client.chat.completions.stream(model="gpt-5.5", messages=messages) as stream:
        streamed = await stream.get_final_completion()

    for completion in (whole, streamed):
        assert completion.choices[0].message.content == "I will look."
        assert completion.choices[0].message.tool_calls[0].function.arguments == '{"a": 1}'
        assert completion.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": [USER], "n": 1}, "Unknown parameter"),
        ({"input": [{"role": "user", "content": [{"type": "output_text", "text": "Hi"}]}]}, "output_text"),
        ({"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}]}, "input_text"),
        ({"input": [USER, OUTPUT]}, "No tool call found"),
        ({"input": [USER, CALL, USER]}, "No tool output found for function call c1"),
        ({"input": [USER, CALL]}, "No tool output found for function call c1"),
        ({"input": [REASONING, USER]}, "without its required following item"),
        ({"input": [REASONING, CALL, OUTPUT], "store": False}, "not found"),
        ({"input": [{**REASONING, "encrypted_content": "x"}, CALL, OUTPUT], "store": False}, "could not be verified"),
        ({"input": [USER], "previous_response_id": "resp_9"}, "previous_response_not_found"),
        ({"input": [USER], "prompt_cache_retention": "in_memory"}, "in_memory"),
        ({"input": [USER], "tools": [{"type": "function", "name": "a", "parameters": {}}]}, "schema"),
    ],
)
async def test_a_response_is_refused_as_the_vendor_refuses_it(client: Any, body: dict[str, Any], message: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.post("/responses", body={"model": "gpt-5.5", **body}, cast_to=object)

    assert message in str(caught.value.body)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([CALLING], "must be followed by tool messages"),
        ([CALLING, {"role": "user", "content": "Hi"}, ANSWER], "must be followed by tool messages"),
        ([ANSWER], "must be a response"),
        ([{"role": "assistant", "content": None}], "null"),
        ([{"role": "function", "content": "a"}], "Invalid role"),
        ([{"role": "user", "content": "Hi", "visibility": "user"}], "visibility"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], "input_text"),
    ],
)
async def test_a_completion_is_refused_as_the_vendor_refuses_it(client: Any, messages: Any, message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        await client.post("/chat/completions", body={"model": "gpt-5.5", "messages": messages}, cast_to=object)


async def test_a_wrong_key_is_refused(server: OpenAIServer) -> None:
    async with openai.AsyncOpenAI(api_key="sk-wrong", base_url=server.base_url, max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
