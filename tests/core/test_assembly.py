"""Models put together without validation are what validation would have made."""

import pickle

import pytest
from pydantic import ValidationError

from amplifier_core import ChatRequest, HookResult, Message
from amplifier_core.models import continuing
from amplifier_core.utils.assembly import assembled, with_parts


def test_an_assembled_model_equals_a_validated_one() -> None:
    given = {"role": "tool", "content": "fine", "tool_call_id": "call_1"}
    values = {**dict.fromkeys(Message.model_fields), **given}

    message = assembled(Message, values, given, {})

    validated = Message(**given)
    assert message == validated
    assert message.model_dump(exclude_unset=True) == validated.model_dump(exclude_unset=True)
    assert message.model_dump_json() == validated.model_dump_json()
    assert pickle.loads(pickle.dumps(message)) == validated


def test_a_copy_with_other_parts_equals_the_copy_that_pydantic_makes() -> None:
    request = ChatRequest(messages=[], reasoning_effort="low", vendor="own")
    parts = {"messages": [Message(role="user", content="hello")]}

    copy = with_parts(request, parts)

    expected = request.model_copy(update=parts)
    assert copy == expected
    assert copy.model_fields_set == expected.model_fields_set
    assert copy.model_extra == {"vendor": "own"}
    assert request.messages == []


def test_a_plain_continue_carries_the_very_data_it_is_given() -> None:
    data = {"key": object()}

    result = continuing(data)

    assert result.data is data
    assert result == HookResult(action="continue", data=data)
    assert result.model_fields_set == {"action", "data"}
    assert result.context_injections is not continuing(data).context_injections


def test_a_result_with_other_data_is_what_validation_makes_of_it() -> None:
    given = {"action": "modify", "data": {"key": object()}}

    result, validated = HookResult(**given), HookResult.model_validate(given)

    assert result == validated
    assert result.model_fields_set == validated.model_fields_set
    assert result.data == given["data"]
    assert result.data is not given["data"]


@pytest.mark.parametrize("data", [{1: "a key that is not a text"}, ["no dict"], "no dict either"])
def test_a_result_with_data_that_no_event_can_have_is_refused(data: object) -> None:
    with pytest.raises(ValidationError):
        HookResult(action="modify", data=data)
