"""What is sent of a conversation: every role and block, in the form of each API."""

from typing import Any

import pytest
from openai_responses import responses_answer, stream_events
from openai_server import RESPONSES, Said
from vendor_server import sse_answer

from amplifier_core import Message

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
DATA_URL = "data:image/png;base64,aGk="


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def call(call_id: str, name: str = "echo", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "input": arguments}


def history() -> list[dict[str, Any]]:
    """Return a conversation with every role: the model thinks, says something and calls two tools at once."""
    thinking = {"type": "thinking", "thinking": "hm", "visibility": "internal", "content": ["gAAA-0", "rs_0"]}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [text("A file."), text("Its end.")]},
        {"role": "user", "content": [text("Look."), IMAGE], "metadata": {"a": 1}, "name": "Ann"},
        {"role": "assistant", "content": [thinking, text("I will."), call("c1", a=1), call("c2", "list_files")]},
        {"role": "tool", "content": "first", "tool_call_id": "c1"},
        {"role": "tool", "content": [text("sec"), text("ond"), IMAGE], "tool_call_id": "c2", "name": "list_files"},
        {"role": "system", "content": [text("And polite.")]},
        {"role": "user", "content": "Go on."},
    ]


async def test_a_history_with_every_role_and_block_becomes_items_of_the_responses_api(responses_desk: Any) -> None:
    responses_desk.server.store.issued["rs_0"] = "gAAA-0"

    await responses_desk.ask(*history(), tools=("echo",))

    (body,) = responses_desk.bodies
    assert body["instructions"] == "Be brief.\n\nAnd polite."
    file = "<context_file>\nA file.\n\nIts end.\n</context_file>"
    image = {"type": "input_image", "image_url": DATA_URL}
    assert body["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": file}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Look."}, image]},
        {
            "type": "reasoning",
            "id": "rs_0",
            "encrypted_content": "gAAA-0",
            "summary": [{"type": "summary_text", "text": "hm"}],
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "I will."}]},
        {"type": "function_call", "call_id": "c1", "name": "echo", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "list_files", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "first"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "second"}, image]},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ]
    assert "visibility" not in str(body)
    assert "Ann" not in str(body)


async def test_a_history_with_every_role_and_block_becomes_chat_messages(chat_desk: Any) -> None:
    await chat_desk.ask(*history(), tools=("echo",))

    (body,) = chat_desk.bodies
    image = {"type": "image_url", "image_url": {"url": DATA_URL}}
    functions = [
        {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": '{"a":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "list_files", "arguments": "{}"}},
    ]
    assert body["messages"] == [
        {"role": "system", "content": "Be brief.\n\nAnd polite."},
        {"role": "user", "content": "<context_file>\nA file.\n\nIts end.\n</context_file>"},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image]},
        {"role": "assistant", "content": "I will.", "tool_calls": functions},
        {"role": "tool", "tool_call_id": "c1", "content": "first"},
        {"role": "tool", "tool_call_id": "c2", "content": "second"},
        {"role": "user", "content": [{"type": "text", "text": "Images of the tool results:"}, image]},
        {"role": "user", "content": "Go on."},
    ]


async def test_by_default_nothing_is_stored_and_reasoning_makes_the_round_trip(responses_desk: Any) -> None:
    responses_desk.server.say(Said("I will look.", thinking="hm", calls=[("c1", "echo", {})]), "Done.")

    first = await responses_desk.ask("Look.", tools=("echo",))
    second = await responses_desk.ask(
        "Look.", first, {"role": "tool", "content": "a", "tool_call_id": "c1"}, tools=("echo",)
    )

    one, two = responses_desk.bodies
    assert [body["store"] for body in (one, two)] == [False, False]
    assert "previous_response_id" not in two
    kinds = [item.get("type") or item["role"] for item in two["input"]]
    assert kinds == ["user", "reasoning", "assistant", "function_call", "function_call_output"]
    assert two["input"][1]["encrypted_content"] == "gAAA-1"
    assert second.text == "Done."


@pytest.mark.parametrize(
    ("content", "is_sent"),
    [
        (["gAAA-0", "rs_0"], True),
        ([{"encrypted_content": "gAAA-0", "id": "rs_0", "status": None}], True),
        (["rs_0"], False),
        ([None, "rs_0"], False),
        (None, False),
    ],
    ids=["pair", "object", "id", "pair without content", "none"],
)
async def test_stored_reasoning_is_sent_back_when_it_has_its_encrypted_form(
    responses_desk: Any, content: Any, is_sent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    responses_desk.server.store.issued["rs_0"] = "gAAA-0"
    thinking = {"type": "thinking", "thinking": "", "content": content}

    await responses_desk.ask("Hi", {"role": "assistant", "content": [thinking, text("Yes?")]}, "Go on.")

    items = responses_desk.bodies[0]["input"]
    sent = [item for item in items if item.get("type") == "reasoning"]
    expected = {"type": "reasoning", "id": "rs_0", "encrypted_content": "gAAA-0", "summary": []}
    assert sent == ([expected] if is_sent else [])
    is_lost = content is not None and not is_sent
    assert any("rs_0" in record.message for record in caplog.records) == is_lost


async def test_a_reasoning_block_is_sent_back_when_it_carries_the_vendors_state(responses_desk: Any) -> None:
    responses_desk.server.store.issued["rs_0"] = "gAAA-0"
    summary = [{"type": "summary_text", "text": "hm"}]
    ours = {"type": "reasoning", "content": [], "summary": summary, "id": "rs_0", "encrypted_content": "gAAA-0"}
    other = {"type": "reasoning", "content": [], "summary": summary}

    await responses_desk.ask("Hi", {"role": "assistant", "content": [other, ours, text("Yes?")]}, "Go on.")

    kinds = [item.get("type") or item["role"] for item in responses_desk.bodies[0]["input"]]
    assert kinds == ["user", "reasoning", "assistant", "user"]


async def test_reasoning_that_nothing_followed_is_not_sent(responses_desk: Any) -> None:
    responses_desk.server.store.issued["rs_0"] = "gAAA-0"
    thinking = {"type": "thinking", "thinking": "hm", "content": ["gAAA-0", "rs_0"]}

    await responses_desk.ask("Hi", {"role": "assistant", "content": [thinking]}, "Go on.")

    assert [item["role"] for item in responses_desk.bodies[0]["input"]] == ["user", "user"]


async def test_a_session_begun_with_another_vendor_goes_on_here(desk: Any) -> None:
    foreign_id = "toolu_" + "0123456789" * 7
    other_id = foreign_id.replace("toolu", "srvtu")
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "EqQBsig"},
        {"type": "redacted_thinking", "data": "xyz"},
        text("I will ask."),
        call(foreign_id, "files.read", path="a"),
        call(other_id),
    ]
    answers = [
        {"role": "tool", "content": "one", "tool_call_id": foreign_id},
        {"role": "tool", "content": "two", "tool_call_id": other_id},
    ]

    response = await desk.ask("Hi", {"role": "assistant", "content": blocks}, *answers, "Go on.")

    sent = str(desk.bodies[0])
    assert response.text == "Hello", "the server, as strict as the vendor, has accepted it"
    assert not any(foreign in sent for foreign in ("EqQBsig", "xyz", "hm", "thinking", "files.read"))
    assert "I will ask." in sent
    assert "one" in sent


async def test_results_in_blocks_of_a_user_message_answer_their_calls(desk: Any) -> None:
    results = [
        {"type": "tool_result", "tool_call_id": "c2", "output": {"b": 2}},
        {"type": "tool_result", "tool_call_id": "c1", "output": "one"},
        text("What now?"),
    ]

    await desk.ask(
        "Hi", {"role": "assistant", "content": [call("c1"), call("c2")]}, {"role": "user", "content": results}
    )

    (body,) = desk.bodies
    items = body.get("input") or body["messages"]
    answers = [
        (item.get("call_id") or item.get("tool_call_id"), item.get("output") or item.get("content")) for item in items
    ]
    assert [answer for answer in answers if answer[0] in ("c1", "c2") and answer[1]] == [
        ("c1", "one"),
        ("c2", '{"b":2}'),
    ]
    assert "What now?" in str(items[-1])


async def test_text_that_the_vendor_would_refuse_is_cleaned(desk: Any) -> None:
    await desk.ask("a\x00b\x1bc\td\ud800", tools=())

    assert "abc\\td" in str(desk.bodies[0])


async def test_thoughts_that_the_vendor_would_refuse_are_cleaned(responses_desk: Any) -> None:
    responses_desk.server.store.issued["rs_0"] = "gAAA-0"
    thinking = {"type": "thinking", "thinking": "a\x00b\ud800", "content": ["gAAA-0", "rs_0"]}

    await responses_desk.ask("Hi", {"role": "assistant", "content": [thinking, text("Yes?")]}, "Go on.")

    reasoning = responses_desk.bodies[0]["input"][1]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "ab"}]


async def test_ids_that_another_vendor_uses_again_stay_apart(responses_desk: Any) -> None:
    for length in (1, 64):
        again, other = "c" * length, "d" * length
        await responses_desk.ask(
            "Hi",
            {"role": "assistant", "content": [call(again)]},
            {"role": "tool", "tool_call_id": again, "content": "one"},
            {"role": "assistant", "content": [call(again), call(other)]},
            {"role": "tool", "tool_call_id": again, "content": "two"},
            {"role": "tool", "tool_call_id": other, "content": "three"},
        )

        items = responses_desk.bodies[-1]["input"]
        calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
        answers = [(item["call_id"], item["output"]) for item in items if item.get("type") == "function_call_output"]
        assert (calls[0], calls[2], len(set(calls))) == (again, other, 3)
        assert answers == list(zip(calls, ("one", "two", "three"), strict=True))


async def test_a_tool_message_without_an_id_is_sent_as_the_users(desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    await desk.ask("Hi", {"role": "tool", "name": "echo", "content": "late"})

    assert "[Tool: echo]\\nlate" in str(desk.bodies[0])
    assert any("tool_call_id" in record.message for record in caplog.records)


@pytest.mark.parametrize("source", [{"type": "file", "id": "f1"}, {"type": "url"}], ids=["file", "no address"])
async def test_an_image_that_cannot_be_sent_is_replaced_and_reported(desk: Any, source: dict[str, Any]) -> None:
    response = await desk.ask({"role": "user", "content": [text("Look."), {"type": "image", "source": source}]})

    assert f"[image omitted: {source['type']} source]" in str(desk.bodies[0])
    assert response.degradation.requested == "images"


async def test_a_block_of_another_kind_is_replaced_and_reported(desk: Any) -> None:
    document = {"type": "document", "source": {"type": "text", "data": "x"}}
    message = Message.model_construct(role="user", content=[text("Read."), document])

    response = await desk.ask(message)

    assert "Read." in str(desk.bodies[0])
    assert "[document omitted]" in str(desk.bodies[0])
    assert response.degradation.requested == "blocks of type document"


async def test_a_model_without_eyes_is_not_sent_images(desk: Any) -> None:
    seeing = await desk.ask({"role": "user", "content": [IMAGE, text("Look.")]})
    blind = await desk.ask({"role": "user", "content": [IMAGE, text("Look.")]}, model="o3")

    assert seeing.degradation is None
    assert blind.degradation.requested == "images"
    assert "aGk=" in str(desk.bodies[0])
    assert "aGk=" not in str(desk.bodies[1])


async def test_an_image_may_be_an_address(desk: Any) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.test/a.png"}}

    await desk.ask({"role": "user", "content": [image]})

    assert "https://example.test/a.png" in str(desk.bodies[0])


async def test_items_of_hosted_tools_are_kept_and_sent_back_as_they_are(responses_desk: Any) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    server = responses_desk.server

    def searched(request: Any) -> Any:
        response, _ = responses_answer(server.store, request.body, Said("Found.", thinking="hm"))
        response["output"].insert(1, search)
        return sse_answer((event["type"], event) for event in stream_events(response))

    server.script(RESPONSES, searched)
    first = await responses_desk.ask("Search.")
    await responses_desk.ask("Search.", first, "Go on.")

    assert first.metadata["openai:items"] == [search]
    sent = responses_desk.bodies[1]["input"]
    assert [item.get("type") or item["role"] for item in sent] == [
        "user", "reasoning", "web_search_call", "assistant", "user",
    ]  # fmt: skip
    assert sent[2] == search
