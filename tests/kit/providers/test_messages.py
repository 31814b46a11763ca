"""Messages in plain form, tool calls and results in order, and nothing converted twice."""

import gc
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core import ChatRequest, Message
from amplifier_core.testing import EventRecorder
from amplifier_kit.providers.messages import IdentityCache, NormalMessage, normalize
from amplifier_kit.providers.stream import ProviderEvents
from amplifier_kit.providers.tool_sequence import MISSING_RESULT, ToolSequence

# --- one message


@pytest.mark.parametrize(
    "call",
    [
        {"id": "1", "tool": "echo", "arguments": {"a": 1}},
        {"id": "1", "name": "echo", "arguments": '{"a": 1}'},
        {"id": "1", "name": "echo", "input": {"a": 1}},
        {"tool_call_id": "1", "tool": "echo", "arguments": {"a": 1}},
        {"id": "1", "type": "function", "function": {"name": "echo", "arguments": '{"a": 1}'}},
    ],
)
def test_a_tool_call_is_read_in_every_spelling(call: dict[str, Any]) -> None:
    message = Message.model_validate({"role": "assistant", "content": "", "tool_calls": [call]})

    assert normalize(message).blocks == ({"type": "tool_call", "id": "1", "name": "echo", "input": {"a": 1}},)


def test_calls_come_from_blocks_first_and_each_once() -> None:
    content = [
        {"type": "tool_use", "id": "1", "name": "a", "input": {}},
        {"type": "text", "text": "then"},
        {"type": "tool_call", "id": "2", "name": "b", "input": {}},
    ]
    beside = [{"id": "2", "tool": "b", "arguments": {}}, {"id": "3", "tool": "c", "arguments": {}}, {"tool": "no id"}]

    message = normalize({"role": "assistant", "content": content, "tool_calls": beside})

    assert [block.get("id", block["type"]) for block in message.blocks] == ["1", "text", "2", "3"]


def test_a_call_that_is_given_twice_is_one_call() -> None:
    call = {"type": "tool_use", "id": "1", "name": "a", "input": {}}
    beside = [{"id": "2", "tool": "b", "arguments": {}}] * 2

    message = normalize({"role": "assistant", "content": [call, call], "tool_calls": beside})

    assert [block["id"] for block in message.calls] == ["1", "2"]


def test_thinking_beside_the_content_counts_only_if_there_is_none_in_it() -> None:
    stored = {"type": "thinking", "thinking": "old", "signature": "s"}
    thought = {"type": "thinking", "thinking": "new", "visibility": "internal"}

    beside = normalize({"role": "assistant", "content": "hi", "thinking_block": stored})
    within = normalize({"role": "assistant", "content": [thought], "thinking_block": stored})

    assert beside.blocks == (stored, {"type": "text", "text": "hi"})
    assert within.blocks == ({"type": "thinking", "thinking": "new"},)


@pytest.mark.parametrize("content", [None, "", []])
def test_no_content_is_no_block(content: Any) -> None:
    assert normalize({"role": "user", "content": content}).blocks == ()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("as it is", "as it is"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image", "source": {"type": "base64"}}], ""),
        ([{"type": "text", "text": "a"}, {"type": "image", "source": {}}], "a"),
    ],
)
def test_a_result_is_text_and_images(content: Any, text: str) -> None:
    (result,) = normalize({"role": "tool", "content": content, "tool_call_id": "1"}).results

    assert (result.call_id, result.text) == ("1", text)
    assert len(result.images) == str(content).count("image")


@pytest.mark.parametrize("role", ["tool", "function", "user"])
def test_a_result_may_be_a_block(role: str) -> None:
    output = {"price": Decimal("1.10"), "name": "ö"}
    block = {"type": "tool_result", "tool_call_id": "1", "output": output}

    message = normalize({"role": role, "content": [block, {"type": "text", "text": "and this"}]})

    assert message.results[0].text == '{"price":"1.10","name":"ö"}'
    assert message.text == "and this"
    assert message.role == ("user" if role == "user" else "tool")


@pytest.mark.parametrize("role", ["user", "tool", "developer"])
async def test_only_the_model_calls_tools(role: str) -> None:
    block = {"type": "tool_call", "id": "1", "name": "x", "input": {}}
    request = ChatRequest(messages=[Message.model_validate({"role": role, "content": [block]})])

    (message,) = await ToolSequence("acme", ProviderEvents(None)).repair(request)

    assert (message.calls, len(request.messages)) == ((), 1)


def test_characters_that_vendors_refuse_are_removed_except_from_what_is_signed() -> None:
    content = [
        {"type": "thinking", "thinking": "a\x00b", "signature": "s"},
        {"type": "text", "text": "a\x00b\ud800\tc"},
        {"type": "tool_call", "id": "1", "name": "x", "input": {"k\x07": ["v\x1b"]}},
    ]

    thinking, text, call = normalize({"role": "assistant", "content": content}).blocks

    assert (thinking["thinking"], text["text"], call["input"]) == ("a\x00b", "ab\tc", {"k": ["v"]})


def test_what_is_not_for_the_vendor_stays_out_of_the_blocks() -> None:
    block = {"type": "text", "text": "a", "visibility": "user", "metadata": {"x": 1}, "citations": [1]}
    message = Message.model_validate({"role": "user", "content": [block], "name": "n", "metadata": {"ephemeral": True}})

    normal = normalize(message)

    assert normal.blocks == ({"type": "text", "text": "a", "citations": [1]},)
    assert (normal.name, normal.metadata) == ("n", {"ephemeral": True})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "hi"}, True),
        ({"role": "user", "content": "<system-reminder>x"}, False),
        ({"role": "user", "content": "x", "tool_call_id": "1"}, False),
        ({"role": "assistant", "content": "hi"}, False),
    ],
)
def test_a_real_user_is_told_from_tools_and_reminders(message: dict[str, Any], expected: bool) -> None:
    assert normalize(message).is_real_user is expected


# --- converted once


def test_what_was_made_of_an_object_is_kept_as_long_as_the_object() -> None:
    cache: IdentityCache[int] = IdentityCache()
    made: list[Any] = []

    def make(message: Any) -> int:
        made.append(id(message))
        return len(made)

    one, twin = (Message(role="user", content="x") for _ in range(2))
    found = [cache.get(one, make), cache.get(one, make), cache.get(twin, make)]
    del one
    gc.collect()

    assert found == [1, 1, 2]
    assert len(cache) == 1


def test_a_plain_dict_is_made_anew() -> None:
    cache: IdentityCache[dict[str, Any]] = IdentityCache()
    stored = {"a": 1}

    assert cache.get(stored, dict) is not cache.get(stored, dict)
    assert len(cache) == 0


# --- tool calls and results


class Repair:
    """A tool sequence and what was heard of it."""

    def __init__(self, **options: Any) -> None:
        self.recorder = EventRecorder()
        self.sequence = ToolSequence("acme", ProviderEvents(SimpleNamespace(hooks=self.recorder)), **options)

    async def repair(self, *messages: dict[str, Any]) -> ChatRequest:
        request = ChatRequest(messages=[Message.model_validate(message) for message in messages])
        await self.sequence.repair(request)
        return request

    def arrange(self, *messages: dict[str, Any]) -> list[str]:
        given = self.sequence.normalized([Message.model_validate(message) for message in messages])
        return [brief(message) for message in self.sequence.arrange(given)]


def brief(message: NormalMessage) -> str:
    results = ",".join(result.call_id for result in message.results)
    calls = ",".join(call["id"] for call in message.calls)
    return f"{message.role}:{results or calls or message.text}"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": i, "tool": "echo", "arguments": {}} for i in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": f"result of {call_id}", "tool_call_id": call_id}


def shape(request: ChatRequest) -> list[str]:
    return [f"{message.role}:{message.tool_call_id or ''}" for message in request.messages]


async def test_a_missing_result_is_inserted_directly_after_its_call() -> None:
    one = Repair()

    request = await one.repair(user("a"), calling("1", "2"), result("2"), user("b"))

    assert shape(request) == ["user:", "assistant:", "tool:1", "tool:2", "user:"]
    inserted = request.messages[2]
    assert str(inserted.content).startswith(MISSING_RESULT)
    assert all(part in str(inserted.content) for part in ("echo", "1"))
    assert one.recorder.events == [
        (
            "provider:tool_sequence_repaired",
            {"provider": "acme", "repair_count": 1, "repairs": [{"tool_call_id": "1", "tool_name": "echo"}]},
        )
    ]


async def test_repair_is_idempotent_and_announced_once_for_each_id(caplog: pytest.LogCaptureFixture) -> None:
    one = Repair()
    first = await one.repair(user("a"), calling("1"))
    before = shape(first)
    await one.sequence.repair(first)
    second = await one.repair(user("a"), calling("1"), user("b"), calling("2"))

    assert shape(first) == before == ["user:", "assistant:", "tool:1"]
    assert shape(second) == ["user:", "assistant:", "tool:1", "user:", "assistant:", "tool:2"]
    announced = [payload["repairs"] for _, payload in one.recorder.events]
    assert [[repair["tool_call_id"] for repair in repairs] for repairs in announced] == [["1"], ["2"]]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2


async def test_an_interrupted_turn_is_closed_where_the_vendor_wants_it() -> None:
    one = Repair(closes_turn=True)

    request = await one.repair(user("a"), calling("1"), user("b"), calling("2"), user("<system-reminder>x"))

    assert shape(request) == ["user:", "assistant:", "tool:1", "assistant:", "user:", "assistant:", "tool:2", "user:"]
    assert one.recorder.events[0][1]["synthetic_assistant_count"] == 1


async def test_an_id_that_is_used_again_needs_a_result_of_its_own() -> None:
    request = await Repair().repair(calling("1"), user("b"), calling("1"), result("1"))

    assert shape(request) == ["assistant:", "tool:1", "user:", "assistant:", "tool:1"]


def test_a_displaced_result_moves_to_its_call() -> None:
    arranged = Repair().arrange(user("a"), calling("1", "2"), user("b"), result("2"), user("c"), result("1"))

    assert arranged == ["user:a", "assistant:1,2", "tool:1", "tool:2", "user:b", "user:c"]


def test_results_that_answer_no_call_or_answer_it_again_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Repair()
    history = [result("0"), user("a"), calling("1"), result("1"), result("1"), result("9")]

    assert one.arrange(*history) == ["user:a", "assistant:1", "tool:1"]
    assert one.arrange(*history) == ["user:a", "assistant:1", "tool:1"]
    warned = [record.message.rpartition(" ")[2] for record in caplog.records if record.levelname == "WARNING"]
    assert sorted(warned) == ["0", "1", "9"]


def test_results_inside_a_user_message_are_taken_out_and_its_text_stays() -> None:
    blocks = [{"type": "tool_result", "tool_call_id": i, "output": i} for i in ("2", "1")]
    mixed = {"role": "user", "content": [*blocks, {"type": "text", "text": "next"}]}

    assert Repair().arrange(calling("1", "2"), mixed) == ["assistant:1,2", "tool:1", "tool:2", "user:next"]


messages = st.lists(
    st.one_of(
        st.sampled_from("ab").map(user),
        st.lists(st.sampled_from("123"), min_size=1, max_size=2, unique=True).map(lambda ids: calling(*ids)),
        st.sampled_from("1234").map(result),
    ),
    max_size=8,
)


@given(messages)
async def test_after_repair_and_arrangement_every_call_is_answered_at_once_and_only_once(
    history: list[dict[str, Any]],
) -> None:
    one = Repair()
    request = await one.repair(*history)
    arranged = one.sequence.arrange(one.sequence.normalized(request.messages))

    waiting: list[str] = []
    for message in arranged:
        if message.results:
            assert [entry.call_id for entry in message.results] == [waiting.pop(0)]
        else:
            assert waiting == []
            waiting = [call["id"] for call in message.calls]
    assert waiting == []


@given(messages)
async def test_repair_twice_is_repair_once(history: list[dict[str, Any]]) -> None:
    one = Repair()
    request = await one.repair(*history)
    before = shape(request)

    await one.sequence.repair(request)

    assert shape(request) == before
