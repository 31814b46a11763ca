"""What the vendor is sent for a conversation."""

import gc
import logging
from typing import Any

import pytest
from anthropic_server import MESSAGES, failure, markers, reply, text, thinking, tool_use

from amplifier_core import Message
from amplifier_core.message_models import ImageBlock

PNG = "iVBORw0KGgo="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **fields}


def call(call_id: str, name: str = "echo", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = "done", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def bare(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of a body without their cache markers."""
    return [
        {
            **message,
            "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]],
        }
        for message in messages
    ]


async def test_a_conversation_with_every_role_and_block_equals_the_vendors_form(desk: Any) -> None:
    signature = "EqQBCkYIARgCKkD/+=="
    body = await desk().body(
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "A file."}]},
        {"role": "user", "content": "Look.", "name": "Ada", "metadata": {"ephemeral": False}},
        said(
            {"type": "thinking", "thinking": "hm", "signature": signature, "visibility": "internal"},
            {"type": "text", "text": "I will ask.", "visibility": "user"},
            call("c1", text="a"),
            call("c2", text="b"),
        ),
        result("c1", "one", name="echo"),
        result("c2", "two", is_error=True),
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "Go on."},
        tools=("echo",),
    )

    assert bare(body["messages"]) == [
        user(text("<context_file>\nA file.\n</context_file>")),
        user(text("Look.")),
        said(
            thinking("hm", signature),
            text("I will ask."),
            tool_use("c1", "echo", {"text": "a"}),
            tool_use("c2", "echo", {"text": "b"}),
        ),
        user(
            {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "c2", "content": "two", "is_error": True},
        ),
        user(text("Go on.")),
    ]
    assert [block["text"] for block in body["system"]] == ["Be brief.\n\nBe kind."]
    assert body["tools"][0]["input_schema"]["properties"] == {"text": {"type": "string"}}
    assert (body["model"], body["max_tokens"], body["stream"]) == ("claude-sonnet-5", 128000, True)
    assert "visibility" not in str(body)
    assert "metadata" not in str(body)
    assert len(list(markers(body))) <= 4


async def test_a_redacted_thought_goes_back_unchanged_and_in_its_place(desk: Any) -> None:
    data = "EmwKAhgBEgy3va3pzix/LafPsn4a"
    body = await desk().body(
        "Hi", said(thinking("a"), {"type": "redacted_thinking", "data": data}, text("b"), thinking("c", "")), "Go on."
    )

    expected = [thinking("a"), {"type": "redacted_thinking", "data": data}, text("b"), thinking("c", "")]
    assert bare(body["messages"])[1]["content"] == expected


async def test_blocks_of_another_vendor_are_left_out_and_nothing_is_refused(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(text("Understood.")))

    response = await one.ask(
        "Hi",
        said(
            {"type": "reasoning", "content": [], "summary": [{"type": "summary_text", "text": "s"}]},
            {"type": "thinking", "thinking": "unsigned"},
            {"type": "thinking", "thinking": "foreign", "signature": "s", "content": ["gAAA", "rs_1"]},
            {"type": "text", "text": "   "},
            IMAGE,
            call("functions.echo:0", "default_api.echo", text="a"),
        ),
        result("functions.echo:0"),
        said({"type": "reasoning", "content": [], "summary": []}),
        "Go on.",
    )

    assert response.text == "Understood."
    (answer, results, last) = bare(one.server.bodies[0]["messages"])[1:]
    assert [block["type"] for block in answer["content"]] == ["text", "tool_use"]
    assert answer["content"][1]["id"] == results["content"][0]["tool_use_id"]
    assert answer["content"][1]["name"] == "default_api_echo"
    assert last == user(text("Go on."))


async def test_ids_that_another_vendor_uses_again_stay_apart(desk: Any) -> None:
    body = await desk().body(
        "Hi",
        said(call("call_0", text="a")),
        result("call_0", "one"),
        said(text("Next."), call("call_0", text="b"), call("call_1")),
        result("call_0", "two"),
        result("call_1", "three"),
    )

    calls = [block["id"] for message in body["messages"] for block in message["content"] if block["type"] == "tool_use"]
    answers = [
        (block["tool_use_id"], block["content"])
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert len(set(calls)) == 3
    assert [answer[0] for answer in answers] == calls
    assert [answer[1] for answer in answers] == ["one", "two", "three"]


async def test_an_orphaned_call_is_answered_in_every_request_and_announced_once(desk: Any, make_request: Any) -> None:
    one = desk()
    for _ in range(2):
        request = make_request("Hi", said(call("c1"), call("c2")), result("c2"), "Go on.")
        await one.provider.complete(request)

        assert [message.role for message in request.messages] == ["user", "assistant", "tool", "tool", "user"]
        results = bare(one.server.bodies[-1]["messages"])[2]["content"]
        assert [block["tool_use_id"] for block in results] == ["c1", "c2"]
        assert results[0]["content"].startswith("[SYSTEM ERROR: Tool result missing from conversation history]")
    (told,) = one.heard("provider:tool_sequence_repaired")
    assert (told["provider"], told["repairs"]) == ("anthropic", [{"tool_call_id": "c1", "tool_name": "echo"}])


async def test_displaced_and_superfluous_results_are_put_right(desk: Any) -> None:
    body = await desk().body(
        "Hi", said(call("c1")), "Are you there?", result("c1", "late"), result("c1", "again"), result("c9")
    )

    assert bare(body["messages"])[2:] == [
        user({"type": "tool_result", "tool_use_id": "c1", "content": "late"}),
        user(text("Are you there?")),
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"type": "base64", "data": PNG}, {"type": "base64", "media_type": "image/jpeg", "data": PNG}),
        ({"type": "url", "url": "https://host/a.png"}, {"type": "url", "url": "https://host/a.png"}),
        (
            {"type": "url", "url": f"data:image/png;base64,{PNG}"},
            {"type": "base64", "media_type": "image/png", "data": PNG},
        ),
        ({"type": "file", "file_id": "file_1", "detail": "x"}, {"type": "file", "file_id": "file_1"}),
    ],
)
async def test_an_image_is_sent_in_the_vendors_form(desk: Any, source: Any, expected: Any) -> None:
    one = desk()

    response = await one.ask(user(text("Look."), {"type": "image", "source": source}))

    assert bare(one.server.bodies[0]["messages"]) == [user(text("Look."), {"type": "image", "source": expected})]
    assert response.degradation is None


@pytest.mark.parametrize("source", [{"type": "base64", "media_type": "image/bmp", "data": PNG}, {"type": "cloud"}, {}])
async def test_an_image_that_cannot_be_sent_becomes_words_and_that_is_said(
    desk: Any, source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk()

    responses = [await one.ask(user({"type": "image", "source": source})) for _ in range(2)]

    assert one.server.bodies[0]["messages"][0]["content"][0]["type"] == "text"
    assert [response.degradation.actual for response in responses if response.degradation] == ["text", "text"]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


async def test_a_result_with_images_has_text_and_images(desk: Any) -> None:
    body = await desk().body("Hi", said(call("c1")), result("c1", [{"type": "text", "text": "a picture"}, IMAGE]))

    (block,) = bare(body["messages"])[2]["content"]
    assert block["content"] == [text("a picture"), IMAGE]


async def test_a_document_is_passed_on_without_what_is_not_for_the_vendor(desk: Any) -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "T"}
    given = {**document, "visibility": "user", "cache_control": {"type": "ephemeral"}}

    body = await desk().body(Message.model_construct(role="user", content=[given, text("Sum it up.")], metadata=None))

    assert bare(body["messages"]) == [user(document, text("Sum it up."))]


async def test_what_is_blank_is_not_sent(desk: Any) -> None:
    body = await desk().body(
        {"role": "system", "content": "  "},
        {"role": "developer", "content": ""},
        user(text(" "), text("Hi")),
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "\n"},
        "Go on.",
    )

    assert bare(body["messages"]) == [user(text("Hi")), user(text("Go on."))]
    assert "system" not in body


@pytest.mark.parametrize(
    "history",
    [
        [{"role": "assistant", "content": "Welcome!"}, {"role": "user", "content": "Hi"}],
        [{"role": "user", "content": ""}],
    ],
    ids=["begins with an answer", "says nothing"],
)
async def test_a_conversation_that_does_not_begin_with_the_user_gets_a_beginning(desk: Any, history: Any) -> None:
    body = await desk().body(*history)

    assert body["messages"][0]["role"] == "user"
    assert body["messages"][0]["content"][0]["text"].strip()


async def test_characters_the_vendor_refuses_are_removed(desk: Any) -> None:
    body = await desk().body("a\x00b\ud800\tc", said(call("c1", text="\x1b[0m")), result("c1", "\x07!"))

    assert bare(body["messages"]) == [
        user(text("ab\tc")),
        said(tool_use("c1", "echo", {"text": "[0m"})),
        user({"type": "tool_result", "tool_use_id": "c1", "content": "!"}),
    ]


async def test_a_thought_that_cannot_be_sent_is_left_out(desk: Any) -> None:
    thought = {"type": "thinking", "thinking": "hm\ud800", "signature": "sig-1"}
    own = {"model": "claude-sonnet-5", "wire_content": [thought, text("Yes?")]}

    body = await desk().body("Hi", said(thought, text("Yes?"), metadata={"anthropic": own}), "Go on.")

    assert bare(body["messages"])[1] == said(text("Yes?"))


async def test_without_prompt_caching_a_text_is_a_string_and_there_is_no_marker(desk: Any) -> None:
    body = await desk(enable_prompt_caching=False).body(
        {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "A file."}, "Hi", tools=("echo",)
    )

    contents = [message["content"] for message in body["messages"]]
    assert contents == ["<context_file>\nA file.\n</context_file>", "Hi"]
    assert list(markers(body)) == []


# --- what was said before, in the vendor's own form


def stored(response: Any) -> dict[str, Any]:
    """Return the message that a loop stores for a response."""
    blocks = [block.model_dump() for block in response.content]
    return {"role": "assistant", "content": blocks, "metadata": response.metadata}


SEARCH = [
    thinking("I search."),
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    text("Found."),
    tool_use("toolu_1", "echo", {"text": "a"}),
]


async def test_what_the_vendor_said_goes_back_exactly_as_long_as_nobody_edits_it(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(*SEARCH))
    response = await one.ask("Hi", tools=("echo",))
    edited = stored(response)
    edited["content"][1] = {"type": "text", "text": "Found it."}

    exact = await one.body("Hi", stored(response), result("toolu_1"), tools=("echo",))
    changed = await one.body("Hi", edited, result("toolu_1"), tools=("echo",))

    assert [block.type for block in response.content] == ["thinking", "text", "tool_call"]
    assert bare(exact["messages"])[1]["content"] == SEARCH
    assert [block["type"] for block in changed["messages"][1]["content"]] == ["thinking", "text", "tool_use"]


async def test_the_vendors_own_form_is_dropped_for_a_model_of_another_family(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, reply(*SEARCH))
    response = await one.ask("Hi", tools=("echo",))

    body = await one.body("Hi", stored(response), result("toolu_1"), model="claude-opus-5", tools=("echo",))

    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "text", "tool_use"]


@pytest.mark.parametrize(
    "refused",
    [
        "messages.1.content.0: thinking block is bound to a different conversation",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ],
)
async def test_thinking_bound_to_a_different_conversation_is_left_out_in_one_more_request(
    desk: Any, refused: str
) -> None:
    one = desk(max_retries=0)
    one.server.script(MESSAGES, failure(400, refused), reply(text("Well.")))

    response = await one.ask("Hi", said(thinking("a"), text("b")), "Hm", said(thinking("c")), "Go on.")

    first, second = one.server.bodies
    assert "thinking" in str(first["messages"])
    assert [message["content"][0].get("text") for message in second["messages"]] == ["Hi", "b", "Hm", "Go on."]
    assert response.text == "Well."
    (told,) = one.heard("provider:thinking_binding_retry")
    assert set(told) == {"provider", "model", "error"}
    assert one.names("provider:retry") == []


async def test_a_request_without_thinking_is_not_sent_again(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, failure(400, "bound to a different conversation"))

    with pytest.raises(Exception, match="bound to a different conversation"):
        await one.ask("Hi")

    assert len(one.server.bodies) == 1


# --- converted once


class Watched(Message):
    """A message that counts how often its content is read."""

    reads: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "content":
            self.__dict__["reads"] = self.__dict__.get("reads", 0) + 1
        return super().__getattribute__(name)


async def test_the_conversion_of_a_thousand_unchanged_messages_is_not_repeated(desk: Any, make_request: Any) -> None:
    one = desk()
    roles = ("user", "assistant")
    history = [Watched(role=roles[place % 2], content=f"message {place}") for place in range(1000)]
    await one.provider.complete(make_request(*history))
    before = [message.reads for message in history]

    for turn in range(3):
        history.append(Watched(role="user", content=f"turn {turn}"))
        await one.provider.complete(make_request(*history))

    assert all(before)
    assert [message.reads for message in history[:1000]] == before
    assert len(one.server.bodies[-1]["messages"]) == 1003


async def test_what_was_converted_goes_with_the_conversation(desk: Any, make_request: Any) -> None:
    one = desk()
    blocks = [ImageBlock(source=IMAGE["source"])]  # type: ignore[arg-type]
    message = Message(role="user", content=blocks)  # type: ignore[arg-type]
    await one.provider.complete(make_request(message))
    watched = id(message)

    del message
    gc.collect()

    assert not [thing for thing in gc.get_objects() if isinstance(thing, Message) and id(thing) == watched]


# --- options


async def test_the_request_decides_before_the_configuration(desk: Any) -> None:
    one = desk(default_model="claude-haiku-4-5", max_tokens=100, temperature=0.5)

    configured = await one.body("Hi")
    asked = await one.body(
        "Hi", model="claude-opus-4-6", temperature=0.0, stop=["END"], max_output_tokens=7, given={"max_tokens": 9}
    )

    names = ("model", "max_tokens", "temperature", "stop_sequences")
    assert [configured.get(name) for name in names] == ["claude-haiku-4-5", 100, 0.5, None]
    assert [asked.get(name) for name in names] == ["claude-opus-4-6", 7, 0.0, ["END"]]


async def test_models_without_sampling_get_none_and_the_log_says_so(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one = desk()

    body = await one.body("Hi", temperature=0.1, top_p=0.9)
    quiet = len([record for record in caplog.records if "takes no" in record.message])
    await one.body("Hi")

    assert not {"temperature", "top_p"} & set(body)
    assert quiet == len([record for record in caplog.records if "takes no" in record.message]) == 2


async def test_top_p_takes_the_place_of_the_configured_temperature(desk: Any) -> None:
    body = await desk().body("Hi", model="claude-haiku-4-5", top_p=0.9)

    assert (body.get("top_p"), body.get("temperature")) == (0.9, None)


async def test_extra_parameters_win_and_each_override_is_reported_once(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk(extra_request_params={"service_tier": "auto", "max_tokens": 5})

    bodies = [await one.body("Hi") for _ in range(2)]

    assert [(body["service_tier"], body["max_tokens"]) for body in bodies] == [("auto", 5)] * 2
    assert len([record for record in caplog.records if "overrides 'max_tokens'" in record.message]) == 1


async def test_metadata_of_a_request_is_never_sent(desk: Any) -> None:
    assert "metadata" not in await desk().body("Hi", metadata={"user_id": "ada"})


async def test_the_headers_are_those_of_the_vendor_and_flags_come_in_order(desk: Any, make_request: Any) -> None:
    one = desk(beta_headers="first-beta, second-beta", default_model="claude-opus-4-6", thinking_type="enabled")
    request = make_request("Hi", tools=("echo",))
    request.tools.append(
        type(request.tools[0])(name="computer", parameters={}, type="computer_20250124", display_width_px=800)
    )

    await one.provider.complete(request, extended_thinking=True)
    await desk().ask("Hi")

    headers, plain = (asked.headers for asked in one.server.asked(MESSAGES))
    flags = ["first-beta", "second-beta", "computer-use-2025-01-24", "interleaved-thinking-2025-05-14"]
    assert headers["anthropic-beta"] == ",".join(flags)
    assert headers["content-type"] == "application/json"
    assert headers["anthropic-version"]
    assert "anthropic-beta" not in plain
