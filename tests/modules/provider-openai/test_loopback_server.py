"""The loopback server itself: it speaks as the vendor's own client expects, and refuses what the vendor refuses."""

import importlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


SAID = {"role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
OUTPUT_MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
}
PICTURE = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
DOCUMENTED = [
    {"input": "Hi"},
    {"input": [{"role": "user", "content": "Hi"}]},
    {"input": [{"type": "message", "role": "developer", "content": "Be brief."}, USER]},
    {"input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [PICTURE]}]},
    {"input": [USER, SAID, USER]},
    {"input": [USER, {"role": "assistant", "content": "Hello"}, USER]},
    {"input": [USER, {"role": "assistant", "content": "Hello", "phase": "final_answer"}, USER]},
    {"input": [USER, OUTPUT_MESSAGE, USER]},
    {"input": [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, USER]},
    {"input": [USER, CALL, {**OUTPUT, "output": [{"type": "input_text", "text": "a"}]}]},
    {"input": [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}]},
    {"input": [USER, {"type": "mcp_list_tools", "id": "m_1", "server_label": "s", "tools": []}]},
    {"input": [USER], "include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
    {"input": [USER], "include": ["web_search_call.action.sources", "file_search_call.results"]},
    {"input": [USER], "reasoning": {"effort": "minimal", "summary": "auto"}, "service_tier": "flex"},
    {"input": [USER], "text": {"format": {"type": "json_object"}, "verbosity": "low"}, "top_logprobs": 2},
    {"input": [USER], "metadata": {"a": "b"}, "user": "u", "background": False, "parallel_tool_calls": True},
    {"input": [USER], "tools": [{"type": "web_search"}, {"type": "custom", "name": "run"}], "tool_choice": "auto"},
    {"input": [USER], "max_output_tokens": None, "temperature": None, "previous_response_id": None},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", DOCUMENTED, ids=range(len(DOCUMENTED)))
async def test_a_response_is_answered_as_the_vendor_documents_it(client: Any, body: Any, stream: bool) -> None:
    response = await client.responses.create(model="gpt-5.5", stream=stream, **body)
    if stream:
        response = [event async for event in response][-1].response

    assert response.output_text == "Hello"


async def test_a_stored_response_is_continued_with_what_is_new_or_with_everything(
    server: OpenAIServer, client: Any
) -> None:
    server.say(Said(calls=[("c1", "echo", {})]))
    first = await client.responses.create(model="gpt-5.5", input="Hi")

    news = await client.responses.create(model="gpt-5.5", input=[OUTPUT], previous_response_id=first.id)
    whole = [{"role": "user", "content": "Hi"}, CALL, OUTPUT]
    everything = await client.responses.create(model="gpt-5.5", input=whole, previous_response_id=first.id)
    text = await client.responses.create(model="gpt-5.5", input="And?", previous_response_id=everything.id)

    assert [news.output_text, everything.output_text, text.output_text] == ["Hello"] * 3
    with pytest.raises(openai.BadRequestError, match="No tool output found for function call c1"):
        await client.responses.create(model="gpt-5.5", input="Well?", previous_response_id=first.id)


TEXT = {"type": "text", "text": "Hi"}
DOCUMENTED_CHATS = [
    {"messages": [{"role": "user", "content": "Hi", "name": "ann"}]},
    {"messages": [{"role": "developer", "content": [TEXT]}, {"role": "user", "content": [TEXT]}]},
    {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}, TEXT]}]},
    {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a", "detail": "low"}}]}
        ]
    },
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [TEXT], "refusal": None}]},
    {"messages": [{"role": "user", "content": "Hi"}, CALLING, {**ANSWER, "content": [TEXT]}]},
    {"messages": [{"role": "user", "content": "Hi"}], "n": 1, "frequency_penalty": 0.5, "logprobs": False},
    {"messages": [{"role": "user", "content": "Hi"}], "stop": ["."], "service_tier": "auto", "metadata": {"a": "b"}},
    {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": {"name": "echo"}}]},
    {"messages": [{"role": "user", "content": "Hi"}], "verbosity": "low", "reasoning_effort": "minimal"},
]


@pytest.mark.parametrize("body", DOCUMENTED_CHATS, ids=range(len(DOCUMENTED_CHATS)))
async def test_a_completion_is_answered_as_the_vendor_documents_it(client: Any, body: Any) -> None:
    completion = await client.chat.completions.create(model="gpt-5.5", **body)

    assert completion.choices[0].message.content == "Hello"


NAMES = st.sampled_from(
    [
        *("model", "input", "messages", "role", "content", "type", "text", "tools", "function", "name", "parameters"),
        *("arguments", "call_id", "output", "summary", "id", "tool_calls", "tool_call_id", "image_url", "reasoning"),
        *("include", "store", "stream", "max_output_tokens", "previous_response_id"),
    ]
)
WORDS = st.sampled_from(
    [
        *("user", "assistant", "tool", "message", "function", "function_call", "function_call_output", "reasoning"),
        *("input_text", "output_text", "text", "input_image", "image_url", "gpt-5.5", "resp_1", "c1"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)
ITEMS = st.lists(st.dictionaries(NAMES, JSON | WORDS, max_size=5) | JSON, max_size=3)
BODIES = st.fixed_dictionaries(
    {"model": st.just("gpt-5.5") | JSON, "input": ITEMS | JSON, "messages": ITEMS | JSON},
    optional={"tools": ITEMS | JSON, "reasoning": JSON, "include": JSON, "stream": JSON, "max_output_tokens": JSON},
)


@pytest.mark.parametrize(("path", "unused"), [("/responses", "messages"), ("/chat/completions", "input")])
def test_nothing_that_is_sent_brings_it_down(path: str, unused: str) -> None:
    with OpenAIServer() as server, httpx2.Client(headers={"authorization": f"Bearer {KEY}"}) as http:

        @settings(max_examples=100, deadline=None)
        @given(BODIES)
        def check(body: dict[str, Any]) -> None:
            body.pop(unused)
            response = http.post(server.base_url + path, json=body)

            assert response.status_code in (200, 400)
            if response.status_code == 400:
                assert response.json()["error"]["message"]

        check()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"5"])
@pytest.mark.parametrize("path", ["/responses", "/chat/completions"])
def test_what_is_not_a_json_object_is_refused(server: OpenAIServer, path: str, content: bytes) -> None:
    response = httpx2.post(server.base_url + path, content=content, headers={"authorization": f"Bearer {KEY}"})

    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")


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
        ({"input": [USER], "include": ["everything"]}, "include"),
        ({"input": [USER], "reasoning": {"effort": "most"}}, "reasoning"),
        ({"input": [USER], "text": 5}, "text"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "nobody", "content": "Hi"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "name": "echo"}]}, "input[0].arguments"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "msg_1"),
        ({"input": [USER], "conversation": "conv_1"}, "conv_1"),
        ({}, "'input'"),
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
