"""What context-simple promises, point by point."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_context_simple import SimpleContextManager, mount

from amplifier_core.testing import EventRecorder, MockCoordinator
from amplifier_kit.contexts.compacting import CompactingContext
from amplifier_kit.messages.stored_messages import estimate_messages

Message = dict[str, Any]


def pair(number: int, text: str) -> list[Message]:
    call_id = f"call_{number}"
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "tool": "read", "arguments": {}}]},
        {"role": "tool", "tool_call_id": call_id, "content": text},
    ]


def turns(count: int, size: int = 100) -> list[Message]:
    return [
        message
        for number in range(count)
        for message in (
            {"role": "user", "content": f"question {number} " + "q" * size},
            {"role": "assistant", "content": f"answer {number} " + "a" * size},
        )
    ]


async def filled(messages: list[Message], **settings: Any) -> SimpleContextManager:
    context = SimpleContextManager(**settings)
    for message in messages:
        await context.add_message(message)
    return context


def test_it_is_the_kits_compacting_context() -> None:
    assert issubclass(SimpleContextManager, CompactingContext)
    assert SimpleContextManager().protected_recent == 0.3


async def test_round_trip_clear_and_set_messages() -> None:
    context = await filled(turns(2))
    assert [message["content"] for message in await context.get_messages()] == [m["content"] for m in turns(2)]

    await context.clear()
    assert await context.get_messages() == []

    await context.set_messages(turns(3))
    assert await context.get_messages() == turns(3)


async def test_an_empty_message_is_refused() -> None:
    with pytest.raises(ValueError, match="role"):
        await SimpleContextManager().add_message({})


async def test_compaction_fires_fits_keeps_pairs_and_leaves_the_history() -> None:
    history = [message for number in range(3) for message in pair(number, "r" * 2048)] + turns(40)
    events = EventRecorder()
    context = await filled(
        history, max_tokens=4000, compact_threshold=0.6, compaction_notice_enabled=False, hooks=events
    )

    view = await context.get_messages_for_request()

    assert events.get_events("context:compaction")
    assert estimate_messages(view) <= 4000
    for place, message in enumerate(view):
        if message["role"] == "tool":
            assert [call["id"] for call in view[place - 1]["tool_calls"]] == [message["tool_call_id"]]
    kept = await context.get_messages()
    assert [message["content"] for message in kept] == [message["content"] for message in history]


@pytest.mark.parametrize("budget", [600, 1200, 2400, 4800])
async def test_six_results_after_one_call_are_all_there_or_none(budget: int) -> None:
    ids = [f"call_{number}" for number in range(6)]
    calls = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": one, "tool": "t", "arguments": {}} for one in ids],
    }
    results = [{"role": "tool", "tool_call_id": one, "content": "r" * 500} for one in ids]
    context = await filled(
        [*turns(2), calls, *results, *turns(30)],
        max_tokens=budget,
        compaction_notice_enabled=False,
        protected_tool_results=0,
    )

    view = await context.get_messages_for_request()

    callers = sum("tool_calls" in message for message in view)
    assert (callers, sum(message["role"] == "tool" for message in view)) in ((0, 0), (1, 6))


async def test_growing_by_one_turn_keeps_the_old_view_as_the_beginning() -> None:
    context = await filled(turns(60, size=300), max_tokens=8000)
    before = await context.get_messages_for_request()
    assert before[-1]["metadata"]["source"] == "context-compaction"

    for message in turns(1):
        await context.add_message(message)
    after = await context.get_messages_for_request()

    assert after[: len(before) - 1] == before[:-1]


async def test_without_protection_results_are_truncated_before_anything_is_removed() -> None:
    history = [{"role": "user", "content": "go"}, *(m for n in range(8) for m in pair(n, "r" * 2048))]
    context = await filled(
        history,
        max_tokens=4500,
        target_usage=0.8,
        protected_tool_results=0,
        compaction_notice_enabled=False,
    )

    view = await context.get_messages_for_request()

    assert len(view) == len(history)
    assert view[2]["content"].startswith("[truncated: ~512 tokens - call tool again if needed] rrr")


@pytest.mark.parametrize("protected", [1, 3, 6])
async def test_the_last_results_are_intact_in_a_view_that_fits(protected: int) -> None:
    history = [{"role": "user", "content": "go"}, *(m for n in range(20) for m in pair(n, f"{n} " + "r" * 1000))]
    context = await filled(history, max_tokens=5000, protected_tool_results=protected, compaction_notice_enabled=False)

    view = await context.get_messages_for_request()

    assert estimate_messages(view) <= 5000
    results = [message["content"] for message in view if message["role"] == "tool"]
    assert results[-protected:] == [f"{number} " + "r" * 1000 for number in range(20 - protected, 20)]


async def test_a_system_prompt_above_the_target_removes_nothing_and_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = await filled([{"role": "system", "content": "s" * 10_000}], max_tokens=4000)
    for message in turns(5):
        await context.add_message(message)
        view = await context.get_messages_for_request()

        assert view == context.messages

    assert caplog.text.count("target is unreachable") == 1


async def test_a_large_image_is_cheap_and_triggers_nothing() -> None:
    events = EventRecorder()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 3_000_000}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}
    context = await filled([message], hooks=events)

    view = await context.get_messages_for_request()

    assert estimate_messages(view) < 3000
    assert (view, events.events) == (context.messages, [])


@pytest.mark.parametrize(
    ("window", "output", "config", "budget"),
    [
        (128_000, 16_000, {}, 115_904),
        (128_000, 16_000, {"max_tokens": 60_000}, 60_000),
        (6_000, 6_000, {}, 1_500),
    ],
)
async def test_the_budget_follows_from_the_providers_window(
    window: int, output: int, config: dict[str, Any], budget: int
) -> None:
    coordinator = MockCoordinator()
    await mount(coordinator, {**config, "compaction_notice_enabled": False})
    context = coordinator.get("context")
    await context.add_message({"role": "user", "content": "x" * 1_000_000})
    model = SimpleNamespace(context_window=window, max_output_tokens=output)

    await context.get_messages_for_request(provider=SimpleNamespace(get_model_info=lambda: model))

    assert context.compaction_stats["budget"] == budget


async def test_a_limit_given_to_the_constructor_does_not_cap_the_provider() -> None:
    context = await filled(
        [{"role": "user", "content": "x" * 1_000_000}], max_tokens=60_000, compaction_notice_enabled=False
    )
    model = SimpleNamespace(context_window=128_000, max_output_tokens=16_000)

    await context.get_messages_for_request(provider=SimpleNamespace(get_model_info=lambda: model))

    assert context.compaction_stats is not None
    assert context.compaction_stats["budget"] == 115_904


async def test_a_message_that_is_not_rewritten_is_the_same_object_in_consecutive_views() -> None:
    context = await filled(turns(60, size=300), max_tokens=8000, compaction_notice_enabled=False)
    before = await context.get_messages_for_request()
    await context.add_message({"role": "user", "content": "more"})

    after = await context.get_messages_for_request()

    assert all(one is other for one, other in zip(before, after, strict=False))
    assert after[-1] is context.messages[-1]


def test_a_hundred_messages_from_threads_are_a_hundred_messages() -> None:
    context = SimpleContextManager()
    threads = [
        threading.Thread(target=lambda n=number: asyncio.run(context.add_message({"role": "user", "content": str(n)})))
        for number in range(100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    messages = asyncio.run(context.get_messages())
    view = asyncio.run(context.get_messages_for_request())

    assert {message["content"] for message in messages} == {str(number) for number in range(100)}
    assert estimate_messages(view) == estimate_messages(messages)


async def test_events_come_in_order_and_not_when_decisions_are_repeated() -> None:
    events = EventRecorder()
    context = await filled(turns(60, size=300), max_tokens=8000, hooks=events)

    for _ in range(3):
        await context.get_messages_for_request()

    assert [event for event, _ in events.events] == [
        "context:pre_compact",
        "context:post_compact",
        "context:compaction",
    ]
