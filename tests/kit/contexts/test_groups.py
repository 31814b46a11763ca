"""How a history is put in the order of a request."""

import json
from typing import Any

import pytest

from amplifier_kit.contexts.groups import Cut, Entry, GroupedConversation, missing_results
from amplifier_kit.messages.stored_messages import estimate_message

Message = dict[str, Any]

USER: Message = {"role": "user", "content": "hello"}
REPLY: Message = {"role": "assistant", "content": "hi"}


def calls(*ids: str) -> Message:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": one, "tool": "read", "arguments": {}} for one in ids],
    }


def result(call_id: str, text: str = "done") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def arranged(*messages: Message, **options: Any) -> GroupedConversation:
    conversation = GroupedConversation(lambda message, is_result: (message, estimate_message(message)), **options)
    for message in messages:
        conversation.append(Entry(message))
    return conversation


def shape(messages: list[Message]) -> list[str]:
    """The messages in short: the role, or what a call or result is about."""
    names = []
    for message in messages:
        if message["role"] == "tool":
            missing = "missing " if message.get("metadata", {}).get("synthetic") else ""
            names.append(f"{missing}{message['tool_call_id']}")
        else:
            names.append(message["role"] + "".join(f" {call['id']}" for call in message.get("tool_calls", [])))
    return names


def test_a_conversation_in_order_stays_as_it_is() -> None:
    history = [USER, calls("a", "b"), result("a"), result("b"), REPLY]

    conversation = arranged(*history)

    assert all(one is other for one, other in zip(conversation.messages, history, strict=True))
    assert conversation.tokens == sum(map(estimate_message, history))


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([calls("a", "b"), result("b"), result("a")], ["assistant a b", "a", "b"]),
        ([calls("a", "b"), result("a"), USER, result("b")], ["assistant a b", "a", "b", "user"]),
        ([calls("a"), USER, REPLY, result("a")], ["assistant a", "a", "user", "assistant"]),
        ([calls("a"), calls("b"), result("a"), result("b")], ["assistant a", "a", "assistant b", "b"]),
        ([result("x"), USER, result("y")], ["user"]),
        ([result("a"), calls("a"), USER], ["assistant a", "missing a", "user"]),
        ([calls("a"), result("a", "one"), result("a", "two")], ["assistant a", "a"]),
        ([calls("a"), USER], ["assistant a", "missing a", "user"]),
        ([calls("a", "b"), result("b"), USER], ["assistant a b", "missing a", "b", "user"]),
        ([calls("a")], ["assistant a"]),
        ([calls("a", "b"), result("a")], ["assistant a b", "a"]),
        ([calls("a"), result("x")], ["assistant a"]),
        ([calls("a"), result("a"), calls("a"), result("a")], ["assistant a", "a", "assistant a", "a"]),
        ([{"role": "tool", "content": "whose?"}], []),
    ],
    ids=[
        "results follow in call order",
        "a message between results moves behind",
        "messages before a late result move behind",
        "interleaved groups are sorted out",
        "orphans are left out",
        "a result before its call is an orphan",
        "of two results the first counts",
        "an unanswered call is answered when the conversation goes on",
        "only what is missing is stood in for",
        "calls at the end wait",
        "calls at the end wait for the rest",
        "an orphan does not end the wait",
        "an id that is used again belongs to the latest call",
        "a result without an id is an orphan",
    ],
)
def test_the_order_of_a_request(history: list[Message], expected: list[str]) -> None:
    assert shape(arranged(*history).messages) == expected


def test_a_stand_in_says_that_the_result_is_missing() -> None:
    stand_in = arranged(calls("a"), USER).messages[1]

    content = json.loads(stand_in["content"])
    assert (stand_in["role"], stand_in["tool_call_id"], content["missing"]) == ("tool", "a", True)
    assert content["error"]
    assert stand_in["metadata"]["synthetic"] is True


def test_the_stand_in_goes_when_the_result_comes_after_all() -> None:
    conversation = arranged(calls("a"), USER)
    assert shape(conversation.messages)[1] == "missing a"

    conversation.append(Entry(result("a")))

    assert shape(conversation.messages) == ["assistant a", "a", "user"]
    assert conversation.tokens == sum(map(estimate_message, conversation.messages))


@pytest.mark.parametrize("kind", ["tool_use", "tool_call"])
def test_calls_and_results_in_content_blocks_are_pairs_too(kind: str) -> None:
    caller = {"role": "assistant", "content": [{"type": kind, "id": "a", "name": "read", "input": {}}]}
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]}

    assert arranged(caller, USER, answer).messages == [caller, answer, USER]
    assert arranged(answer, USER).messages == [USER]


def test_a_message_may_answer_several_calls() -> None:
    answer = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": one, "content": "done"} for one in ("a", "b")],
    }

    assert arranged(calls("a", "b"), answer).messages[1:] == [answer]


def test_results_that_belong_nowhere_are_taken_out_of_a_message_with_other_content() -> None:
    text = {"type": "text", "text": "and now?"}
    orphan = {"type": "tool_result", "tool_use_id": "x", "content": "done"}

    assert arranged({"role": "user", "content": [orphan, text]}).messages == [{"role": "user", "content": [text]}]


def test_a_call_that_is_listed_twice_is_one_call() -> None:
    block = {"type": "tool_call", "id": "a", "name": "read", "input": {}}
    caller = {**calls("a"), "content": [block]}

    assert shape(arranged(caller, USER).messages) == ["assistant a", "missing a", "user"]


def test_a_call_that_its_own_message_answers_waits_for_nothing() -> None:
    blocks = [
        {"type": "tool_use", "id": "a", "name": "search", "input": {}},
        {"type": "tool_result", "tool_use_id": "a", "content": "found"},
    ]
    caller = {"role": "assistant", "content": blocks}

    assert arranged(caller, USER).messages == [caller, USER]


def test_calls_in_the_spelling_of_functions_are_understood() -> None:
    function = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    conversation = arranged({"role": "assistant", "content": None, "tool_calls": [function]}, result("a"))

    assert len(conversation.messages) == 2
    assert conversation.find_tool_name("a") == "read"


def test_a_call_without_an_id_waits_for_nothing() -> None:
    caller = {"role": "assistant", "content": "", "tool_calls": [{"tool": "read"}, "nonsense", None]}

    assert arranged(caller, USER).messages == [caller, USER]


def test_stored_system_messages_are_hidden_unless_a_hook_wrote_them() -> None:
    prompt = {"role": "system", "content": "You are kind."}
    injected = {"role": "system", "content": "Be brief.", "metadata": {"source": "hook"}}

    assert arranged(prompt, injected, USER, hides_system_messages=True).messages == [injected, USER]
    assert arranged(prompt, injected, USER).messages == [prompt, injected, USER]


def test_a_removed_group_swallows_the_results_that_come_later() -> None:
    conversation = arranged(USER, calls("a"), REPLY)
    conversation.apply({conversation.units[1].head: Cut.REMOVE})

    conversation.append(Entry(result("a")))

    assert conversation.messages == [USER, REPLY]
    assert conversation.tokens == sum(map(estimate_message, [USER, REPLY]))


def test_what_a_person_says_beside_the_result_of_a_removed_call_stays() -> None:
    conversation = arranged(USER, calls("a"), REPLY)
    conversation.apply({conversation.units[1].head: Cut.REMOVE})
    text = {"type": "text", "text": "and now?"}

    conversation.append(
        Entry({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}, text]})
    )

    assert conversation.messages == [USER, REPLY, {"role": "user", "content": [text]}]


def test_a_group_that_was_closed_stays_closed_when_what_follows_is_removed() -> None:
    conversation = arranged(calls("a"), REPLY)
    conversation.apply({conversation.units[1].head: Cut.REMOVE})

    assert shape(conversation.messages) == ["assistant a", "missing a"]
    assert not conversation.is_awaiting_results


def test_the_results_that_the_end_of_a_history_waits_for() -> None:
    assert shape(missing_results([calls("a", "b"), result("b")])) == ["missing a"]
    assert missing_results([calls("a"), result("a")]) == []
    assert missing_results([calls("a"), USER]) == []
    assert missing_results([]) == []
