"""The vendor's stand-in refuses what the vendor refuses, so that other tests can rely on it."""

import copy
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from anthropic_server import AnthropicServer, model_entry, reply, text, thinking, tool_use

Change = Callable[[dict[str, Any]], object]

RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}
GOOD: dict[str, Any] = {
    "model": "claude-haiku-4-5",
    "max_tokens": 2000,
    "system": [text("Be brief.")],
    "tools": [{"name": "echo", "description": "", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [thinking("hm"), text("Well."), tool_use("t1", "echo")]},
        {"role": "user", "content": [RESULT, text("Go on.")]},
    ],
}
MARKER = {"cache_control": {"type": "ephemeral"}}


async def ask(server: AnthropicServer, body: dict[str, Any], **headers: str) -> httpx2.Response:
    given = {"x-api-key": server.key, "anthropic-version": "2023-06-01", **headers}
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as client:
        return await client.post("/v1/messages", json=body, headers={k: v for k, v in given.items() if v})


async def test_a_good_request_is_answered(server: AnthropicServer) -> None:
    answer = await ask(server, GOOD)

    assert (answer.status_code, answer.json()["content"]) == (200, [text("Hello")])
    assert answer.headers["anthropic-ratelimit-requests-limit"] == "50"


async def test_who_has_no_key_or_no_version_is_refused(server: AnthropicServer) -> None:
    assert (await ask(server, GOOD, **{"x-api-key": "other"})).status_code == 401
    assert (await ask(server, GOOD, **{"anthropic-version": ""})).status_code == 400
    bearer = {"x-api-key": "", "Authorization": f"Bearer {server.key}"}
    assert (await ask(server, GOOD, **bearer)).status_code == 200


def block(place: int, number: int, **changes: Any) -> Change:
    return lambda body: body["messages"][place]["content"][number].update(changes)


def without(place: int, number: int, key: str) -> Change:
    return lambda body: body["messages"][place]["content"][number].pop(key)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body.pop("model"), "model: Field required"),
        (lambda body: body.update(max_tokens=0), "max_tokens"),
        (lambda body: body.update(messages=[]), "messages: Field required"),
        (lambda body: body.update(hurry=True), "hurry: Extra inputs are not permitted"),
        (lambda body: body["messages"].pop(0), "first message must use the user role"),
        (lambda body: body["messages"][0].update(name="Ada"), "messages.0.name: Extra inputs are not permitted"),
        (lambda body: body["messages"][0].update(content=" "), "non-whitespace"),
        (lambda body: body["messages"][0].update(content=[]), "non-empty content"),
        (block(1, 1, visibility="user"), "messages.1.content.1.text.visibility: Extra inputs are not permitted"),
        (without(1, 0, "signature"), "messages.1.content.0.thinking.signature: Field required"),
        (block(1, 0, **MARKER), "Extra inputs are not permitted"),
        (block(1, 2, input="{}"), "messages.1.content.2.tool_use.input: Field required"),
        (block(1, 2, id="t.1"), "should match the pattern"),
        (block(2, 0, tool_use_id="t9"), "unexpected `tool_use_id`"),
        (lambda body: body["messages"].pop(2), "without `tool_result` blocks immediately after"),
        (lambda body: body["messages"][2]["content"].reverse(), "`tool_result` blocks must come first"),
        (lambda body: body["messages"][2]["content"].insert(0, RESULT), "single result"),
        (lambda body: body["messages"][1]["content"].append(tool_use("t1", "echo")), "ids must be unique"),
        (lambda body: body["tools"][0].update(name="no spaces"), "tools.0.custom.name"),
        (lambda body: body["tools"][0].update(input_schema={}), "input_schema"),
        (lambda body: body.update(tool_choice={"type": "tool", "name": "gone"}), "not found"),
        (lambda body: body.update(thinking={"type": "enabled", "budget_tokens": 1000}), "1024"),
        (lambda body: body.update(thinking={"type": "enabled", "budget_tokens": 2000}), "`max_tokens` must be greater"),
        (
            lambda body: body.update(thinking={"type": "enabled", "budget_tokens": 1024}, temperature=0.7),
            "`temperature` may only be set to 1",
        ),
        (
            lambda body: body.update(thinking={"type": "enabled", "budget_tokens": 1024}, tool_choice={"type": "any"}),
            "Thinking may not be enabled",
        ),
        (lambda body: body.update(system=[{**text(f"{n}"), **MARKER} for n in range(5)]), "A maximum of 4 blocks"),
        (lambda body: body.update(model="claude-sonnet-5", temperature=0.7), "temperature is not supported"),
    ],
)
async def test_what_the_vendor_refuses_is_refused(server: AnthropicServer, change: Change, said: str) -> None:
    body = copy.deepcopy(GOOD)
    change(body)

    answer = await ask(server, body)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert said in answer.json()["error"]["message"]


async def test_a_stream_has_the_vendors_events_in_their_order(server: AnthropicServer) -> None:
    server.always = reply(thinking("hm"), tool_use("t2", "echo", {"a": 1}))

    answer = await ask(server, {**GOOD, "stream": True})

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    names = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names == [
        *("message_start", "ping"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]


async def test_models_are_listed_in_pages_and_shown_one_by_one(server: AnthropicServer) -> None:
    server.models = [model_entry(f"model-{number}", f"Model {number}") for number in range(3)]
    headers = {"x-api-key": server.key, "anthropic-version": "2023-06-01"}

    async with httpx2.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as client:
        first = (await client.get("/v1/models?limit=2")).json()
        rest = (await client.get("/v1/models?limit=2&after_id=model-1")).json()
        one, gone = await client.get("/v1/models/model-2"), await client.get("/v1/models/model-9")

    assert (first["has_more"], first["first_id"], first["last_id"]) == (True, "model-0", "model-1")
    assert ([model["id"] for model in rest["data"]], rest["has_more"]) == (["model-2"], False)
    assert (one.json()["display_name"], gone.status_code) == ("Model 2", 404)
