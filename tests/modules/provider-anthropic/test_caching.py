"""Where prompts are cached."""

from typing import Any

import pytest
from anthropic_server import markers, text, tool_use

SYSTEM = {"role": "system", "content": "Be brief."}


def user(words: str, **metadata: Any) -> dict[str, Any]:
    return {"role": "user", "content": words, "metadata": metadata or None}


def said(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def step(number: int) -> list[dict[str, Any]]:
    """Return a call and its result."""
    call = {"type": "tool_call", "id": f"c{number}", "name": "echo", "input": {}}
    return [
        {"role": "assistant", "content": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number}"},
    ]


def marked(body: dict[str, Any]) -> list[int]:
    """Return the places of the messages that carry a marker."""
    return [int(where.split(".")[1]) for where in markers(body) if where.startswith("messages")]


async def test_system_and_tools_have_a_marker_and_the_conversation_once_it_is_known(desk: Any) -> None:
    one = desk()

    first = await one.body(SYSTEM, "One", "Two", tools=("echo", "other"))
    second = await one.body(SYSTEM, "One", "Two", said("A"), "Three", tools=("echo", "other"))

    assert list(markers(first)) == ["tools.1.custom", "system.0.text"]
    assert list(markers(second))[:2] == ["tools.1.custom", "system.0.text"]
    assert marked(second) == [2, 3]
    assert first["messages"] == [
        {**message, "content": [text(words)]}
        for message, words in zip(second["messages"][:2], ("One", "Two"), strict=True)
    ]


async def test_the_stable_region_can_be_kept_for_an_hour_and_the_conversation_never_is(desk: Any) -> None:
    one = desk(cache_stable_region_ttl_1h=True)

    await one.ask(SYSTEM, "One", "Two", tools=("echo",))
    body = await one.body(SYSTEM, "One", "Two", "Three", tools=("echo",))

    hour, minutes = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}
    assert body["system"][0]["cache_control"] == body["tools"][0]["cache_control"] == hour
    assert [body["messages"][place]["content"][-1]["cache_control"] for place in marked(body)] == [minutes] * 2


async def test_what_is_declared_ephemeral_stays_outside_from_the_first_request_on(desk: Any) -> None:
    one = desk()

    body = await one.body("One", said("A"), "Two", user("<system-reminder>now", ephemeral=True))
    kept = await desk().body("One", said("A"), "Two", user("stored", ephemeral=True, persisted=True))

    assert marked(body) == [1, 2]
    assert marked(kept)[-1] == 3


async def test_what_changed_at_the_end_of_the_previous_request_stays_outside_of_the_next(desk: Any) -> None:
    one = desk()
    history = ["One", *step(1)]

    await one.ask(*history, "<system-reminder>10:00")
    history += step(2)
    body = await one.body(*history, "<system-reminder>10:05")
    same = await one.body(*history, "<system-reminder>10:05")

    assert len(body["messages"]) == 6
    assert max(marked(body)) == 4
    assert marked(same) == marked(body)


async def test_in_a_long_turn_the_second_marker_follows_two_messages_behind(desk: Any) -> None:
    one = desk()
    history = ["One", *step(1)]
    await one.ask(*history)
    for number in (2, 3):
        history += step(number)
        body = await one.body(*history)

    assert marked(body) == [4, 6]


async def test_a_call_that_is_answered_carries_no_marker(desk: Any) -> None:
    one = desk()
    await one.ask("One", *step(1))

    body = await one.body("One", *step(1), user("<system-reminder>x", ephemeral=True))

    assert marked(body)[-1] == 2
    assert body["messages"][1]["content"] == [tool_use("c1", "echo")]


@pytest.mark.parametrize("infers", [True, False])
async def test_without_any_knowledge_the_conversation_has_no_marker(desk: Any, infers: bool) -> None:
    one = desk(cache_infer_stability_from_history=infers)

    first, second = await one.body("One", "Two"), await one.body("One", "Two", "Three")
    alone = await one.body(user("Alone", ephemeral=False))

    assert marked(first) == marked(alone) == []
    assert bool(marked(second)) is infers


async def test_a_conversation_that_changed_from_its_beginning_is_not_cached_and_that_is_said(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk()

    await one.ask({"role": "developer", "content": "old file"}, "One", "Two")
    body = await one.body({"role": "developer", "content": "new file"}, "One", "Two")

    assert marked(body) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_conversations_do_not_disturb_each_other(desk: Any) -> None:
    one = desk()
    await one.ask("One", "Two")
    for number in range(20):
        await one.ask(f"Other {number}", "Two", metadata={"stream": False})

    assert marked(await one.body("One", "Two", "Three")) == [1, 2]
