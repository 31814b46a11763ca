"""What the views of a compacting context show, tell and announce."""

import json
import logging
from typing import Any

import pytest

from amplifier_core import HookRegistry, HookResult
from amplifier_core.testing import EventRecorder
from amplifier_kit.contexts.compacting import CompactingContext
from amplifier_kit.messages.stored_messages import estimate_messages

Message = dict[str, Any]


def exchange(number: int, size: int = 400) -> list[Message]:
    """A question, a tool call with its result, and an answer."""
    call_id = f"call_{number}"
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "tool": "read", "arguments": {}}]},
        {"role": "tool", "tool_call_id": call_id, "content": f"{number} " + "y" * size},
        {"role": "assistant", "content": f"answer {number}"},
    ]


def exchanges(count: int, size: int = 400) -> list[Message]:
    return [message for number in range(count) for message in exchange(number, size)]


async def filled(messages: list[Message], **settings: Any) -> CompactingContext:
    context = CompactingContext(**settings)
    for message in messages:
        await context.add_message(message)
    return context


def notice_of(view: list[Message]) -> Message | None:
    last = view[-1] if view else {}
    return last if (last.get("metadata") or {}).get("source") == "context-compaction" else None


class TestViews:
    async def test_a_view_holds_the_stored_messages_themselves(self) -> None:
        context = await filled(exchanges(3))

        view = await context.get_messages_for_request()

        assert all(one is other for one, other in zip(view, context.messages, strict=True))

    async def test_a_view_is_a_list_of_its_own(self) -> None:
        context = await filled(exchanges(3))

        (await context.get_messages_for_request()).clear()

        assert len(await context.get_messages_for_request()) == 12

    async def test_without_compaction_a_view_is_put_in_order_all_the_same(self) -> None:
        context = await filled([*exchanges(30), {"role": "tool", "tool_call_id": "nobody", "content": "?"}])
        context.auto_compact = False
        context.max_tokens = 100

        view = await context.get_messages_for_request()

        assert len(view) == 120

    async def test_what_is_not_rewritten_is_the_same_object_after_a_compaction(self) -> None:
        context = await filled(exchanges(12, size=2000), max_tokens=8000, target_usage=0.7)
        stored = {id(message) for message in context.messages}

        first, second = [await context.get_messages_for_request() for _ in range(2)]

        assert all(one is other for one, other in zip(first, second, strict=True))
        unchanged = [message for message in first if id(message) in stored]
        rewritten = [message for message in first if id(message) not in stored and message is not notice_of(first)]
        assert unchanged
        assert rewritten
        assert all(message["content"].startswith("[truncated") for message in rewritten)

    async def test_replies_are_returned_with_everything_they_carry(self) -> None:
        thinking = {"type": "thinking", "thinking": "hm", "signature": "abc"}
        reply = {
            "role": "assistant",
            "content": [thinking, {"type": "text", "text": "yes"}],
            "metadata": {"model": "m"},
        }
        context = await filled([*exchanges(40), reply], max_tokens=8000, compaction_notice_enabled=False)

        view = await context.get_messages_for_request()

        assert view[-1] is context.messages[-1]
        assert view[-1]["content"] == reply["content"]

    async def test_growing_without_a_new_escalation_keeps_the_beginning(self) -> None:
        context = await filled(exchanges(40), max_tokens=8000)
        before = await context.get_messages_for_request()

        for message in exchange(40):
            await context.add_message(message)
        after = await context.get_messages_for_request()

        assert notice_of(before) is notice_of(after)
        assert after[: len(before) - 1] == before[:-1]
        assert len(after) == len(before) + 4

    async def test_a_larger_budget_brings_nothing_back(self) -> None:
        context = await filled(exchanges(60), compaction_notice_enabled=False)
        cut = await context.get_messages_for_request(token_budget=4000)

        assert await context.get_messages_for_request(token_budget=1_000_000) == cut


class TestClipping:
    async def test_a_huge_result_is_clipped_in_the_view_only(self) -> None:
        messages = exchange(0, size=500_000)
        context = await filled(messages)

        first, second = [await context.get_messages_for_request() for _ in range(2)]

        content = first[2]["content"]
        assert len(content.encode()) <= 131_072
        assert "500002 bytes" in content
        assert first[2] is second[2]
        assert (await context.get_messages())[2]["content"] == messages[2]["content"]

    async def test_clipping_is_announced_when_the_result_is_added(self) -> None:
        events = EventRecorder()
        context = await filled(exchange(0, size=2000), max_tool_result_bytes=1024, hooks=events)
        for _ in range(3):
            await context.get_messages_for_request()

        assert events.events == [
            (
                "context:tool_result_ingress_truncated",
                {
                    "tool_name": "read",
                    "tool_call_id": "call_0",
                    "original_text_utf8_bytes": 2002,
                    "stored_text_utf8_bytes": len((await context.get_messages_for_request())[2]["content"]),
                    "max_tool_result_bytes": 1024,
                    "content_kind": "text",
                },
            )
        ]

    async def test_the_name_in_the_message_is_the_tools_name(self) -> None:
        events = EventRecorder()
        blocks = [{"type": "text", "text": "x" * 5000}]
        message = {"role": "tool", "tool_call_id": "a", "name": "search", "content": blocks}

        await filled([message], max_tool_result_bytes=1024, hooks=events)

        assert [(data["tool_name"], data["content_kind"]) for _, data in events.events] == [("search", "blocks")]

    async def test_a_clipped_result_that_is_truncated_tells_its_whole_size(self) -> None:
        messages = [*exchange(99, size=40_000), *exchanges(20, size=10)]
        context = await filled(messages, max_tokens=7000, max_tool_result_bytes=20_000)

        view = await context.get_messages_for_request()

        assert view[2]["content"].startswith("[truncated: ~10000 tokens")


class TestEvents:
    async def test_a_compaction_is_announced_in_three_steps(self) -> None:
        events = EventRecorder()
        context = await filled(exchanges(40), max_tokens=8000, hooks=events)
        before = estimate_messages(context.messages)

        view = await context.get_messages_for_request()

        (pre, announced), (post, done), (compaction, stats) = events.events
        assert (pre, post, compaction) == ("context:pre_compact", "context:post_compact", "context:compaction")
        assert announced == {"message_count": 160, "token_count": before, "budget": 7200, "target_tokens": 3600}
        assert done == {
            "message_count": len(view) - 1,
            "token_count": estimate_messages(view[:-1]),
            **{key: stats[key] for key in ("strategy_level", "messages_removed", "messages_truncated")},
        }

    async def test_the_statistics_add_up(self) -> None:
        events = EventRecorder()
        context = await filled(exchanges(40), max_tokens=8000, hooks=events, protected_recent=0.2)
        before = estimate_messages(context.messages)

        view = await context.get_messages_for_request()

        stats = events.get_events("context:compaction")[0][1]
        assert set(stats) == {
            "before_tokens",
            "after_tokens",
            "before_messages",
            "after_messages",
            "messages_removed",
            "messages_truncated",
            "user_messages_stubbed",
            "system_messages_preserved",
            "strategy_level",
            "budget",
            "target_tokens",
            "protected_recent",
            "protected_tool_results",
            "over_budget",
        }
        assert (stats["before_messages"], stats["before_tokens"]) == (160, before)
        assert stats["after_messages"] == len(view) - 1 == 160 - stats["messages_removed"]
        assert stats["after_tokens"] == estimate_messages(view[:-1]) <= stats["target_tokens"]
        assert (stats["protected_recent"], stats["protected_tool_results"]) == (0.2, 5)
        assert (stats["over_budget"], stats["system_messages_preserved"]) == (False, 0)
        assert stats == context.compaction_stats

    async def test_the_statistics_are_about_all_decisions_so_far(self) -> None:
        events = EventRecorder()
        context = await filled(exchanges(40), max_tokens=8000, hooks=events)
        await context.get_messages_for_request()
        for message in exchanges(40):
            await context.add_message(message)

        await context.get_messages_for_request()

        (_, first), (_, second) = events.get_events("context:compaction")
        assert second["before_messages"] == 320
        assert second["messages_removed"] > first["messages_removed"]
        assert second["before_messages"] - second["messages_removed"] == second["after_messages"]
        assert second["strategy_level"] >= first["strategy_level"]

    async def test_a_view_that_only_repeats_decisions_announces_nothing(self) -> None:
        events = EventRecorder()
        context = await filled(exchanges(40), max_tokens=8000, hooks=events)
        await context.get_messages_for_request()
        events.clear()

        await context.get_messages_for_request()
        await context.add_message({"role": "user", "content": "more"})
        await context.get_messages_for_request()

        assert events.events == []

    async def test_what_a_hook_answers_is_ignored(self) -> None:
        hooks = HookRegistry()
        hooks.register("context:pre_compact", lambda event, data: HookResult(action="deny", reason="never"))
        context = await filled(exchanges(40), max_tokens=8000, hooks=hooks)

        assert len(await context.get_messages_for_request()) < 160

    async def test_a_registry_that_fails_does_not_fail_the_request(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken:
            async def emit(self, event: str, data: Message) -> None:
                raise RuntimeError("out of order")

        context = await filled(exchanges(40), max_tokens=8000, hooks=Broken())

        assert len(await context.get_messages_for_request()) < 160
        assert "context:pre_compact could not be emitted" in caplog.text


class TestNotice:
    async def view(self, **settings: Any) -> list[Message]:
        return await (await filled(exchanges(40), max_tokens=8000, **settings)).get_messages_for_request()

    async def test_the_notice_is_the_last_message_and_no_system_message(self) -> None:
        notice = (await self.view())[-1]

        assert (notice["role"], notice["metadata"]) == ("user", {"source": "context-compaction", "ephemeral": True})
        assert notice["content"].startswith('<system-reminder source="context-compaction">')
        assert notice["content"].endswith("</system-reminder>")

    async def test_each_verbosity_says_more(self) -> None:
        minimal, normal, verbose = [
            (await self.view(compaction_notice_verbosity=verbosity))[-1]["content"]
            for verbosity in ("minimal", "normal", "verbose")
        ]

        assert "compacted" in minimal
        assert "/8" not in minimal
        for words in (
            "/8",
            "160 before",
            "removed: ",
            "stubbed: ",
            "truncated: ",
            "target 3600",
            "preserved",
            "missing",
        ):
            assert words in normal
        assert "30%" not in normal
        assert "newest 30%" in verbose
        assert "newest 5 tool results" in verbose
        assert "budget: 7200" in verbose

    async def test_there_is_no_notice_when_it_is_switched_off(self) -> None:
        assert notice_of(await self.view(compaction_notice_enabled=False)) is None

    async def test_there_is_no_notice_before_anything_was_cut(self) -> None:
        context = await filled(exchanges(3))

        assert notice_of(await context.get_messages_for_request()) is None

    async def test_there_is_no_notice_below_its_level(self) -> None:
        assert notice_of(await self.view(compaction_notice_min_level=8)) is None
        assert notice_of(await self.view(compaction_notice_min_level=2)) is not None

    async def test_the_notice_waits_while_tool_calls_do(self) -> None:
        question, call, result, _ = exchange(99)
        context = await filled([*exchanges(40), question, call], max_tokens=8000)
        view = await context.get_messages_for_request()
        assert notice_of(view) is None

        await context.add_message(result)

        assert notice_of(await context.get_messages_for_request()) is not None

    async def test_a_view_fits_the_budget_with_its_notice(self) -> None:
        for verbosity in ("minimal", "normal", "verbose"):
            assert estimate_messages(await self.view(compaction_notice_verbosity=verbosity)) <= 8000

    async def test_a_notice_that_does_not_fit_is_left_out(self) -> None:
        context = await filled(
            [{"role": "system", "content": "s" * 1500}, *exchanges(20)], max_tokens=500, compact_threshold=1.0
        )

        view = await context.get_messages_for_request()

        assert estimate_messages(view) <= 500 or context.compaction_stats["over_budget"]  # type: ignore[index]
        assert notice_of(view) is None


class TestUnreachableTarget:
    async def test_nothing_is_cut_and_one_warning_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        events = EventRecorder()
        context = await filled(exchanges(4), max_tokens=4000, compaction_notice_enabled=False, hooks=events)
        await context.set_system_prompt_factory(lambda: "s" * 11_000)

        for number in range(4, 6):
            for message in exchange(number, size=1):
                await context.add_message(message)
                assert len(await context.get_messages_for_request()) == len(context.messages) + 1

        assert caplog.text.count("target is unreachable") == 1
        assert "in system messages" in caplog.text
        assert events.events == []

    async def test_above_the_budget_the_budget_is_the_target(self) -> None:
        context = await filled(exchanges(40), max_tokens=3000, compaction_notice_enabled=False)
        await context.set_system_prompt_factory(lambda: "s" * 8400)

        view = await context.get_messages_for_request()

        assert estimate_messages(view) <= 3000
        assert context.compaction_stats is not None
        assert context.compaction_stats["target_tokens"] == 3000

    async def test_cutting_leaves_room_so_that_the_next_views_begin_alike(self) -> None:
        events = EventRecorder()
        context = await filled(exchanges(40), max_tokens=6000, compaction_notice_enabled=False, hooks=events)
        await context.set_system_prompt_factory(lambda: "s" * 14_000)
        before = await context.get_messages_for_request()
        events.clear()

        for message in exchange(40):
            await context.add_message(message)
            after = await context.get_messages_for_request()

        assert after[: len(before)] == before
        assert events.events == []

    async def test_the_warning_comes_again_when_the_target_was_reachable_in_between(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = await filled(exchanges(10), max_tokens=4000, compaction_notice_enabled=False)
        prompts = iter(["s" * 10_000, "s", "s" * 10_000])
        await context.set_system_prompt_factory(lambda: next(prompts))

        for _ in range(3):
            await context.get_messages_for_request()
            for message in exchanges(20):
                await context.add_message(message)

        assert caplog.text.count("target is unreachable") == 2


class TestOverBudget:
    async def test_what_cannot_be_cut_is_told_once(self, caplog: pytest.LogCaptureFixture) -> None:
        events = EventRecorder()
        context = await filled([{"role": "user", "content": "x" * 10_000}], max_tokens=1000, hooks=events)

        for _ in range(3):
            view = await context.get_messages_for_request()

        assert view == context.messages
        assert caplog.text.count("nothing is left to cut") == 1
        assert "max_tokens" in caplog.text
        assert [data["over_budget"] for _, data in events.get_events("context:compaction")] == [True]

    async def test_it_is_over_when_there_is_room_again(self) -> None:
        context = await filled([{"role": "user", "content": "x" * 10_000}], max_tokens=1000)
        await context.get_messages_for_request()

        await context.get_messages_for_request(token_budget=100_000)

        assert context.compaction_stats is not None
        assert context.compaction_stats["over_budget"] is False

    async def test_a_target_above_the_threshold_is_legal_and_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        context = await filled(exchanges(8), max_tokens=2800, compact_threshold=0.5, target_usage=0.95)

        assert "target_usage" in caplog.text
        assert 1000 < estimate_messages(context.messages) <= 1900
        assert len(await context.get_messages_for_request()) == 32


async def test_a_compaction_is_logged_without_the_text_of_messages(caplog: pytest.LogCaptureFixture) -> None:
    context = await filled(exchanges(40), max_tokens=8000)

    with caplog.at_level(logging.DEBUG):
        await context.get_messages_for_request()

    assert "compacted to level" in caplog.text
    assert "question" not in caplog.text


async def test_a_view_can_be_written_as_json() -> None:
    context = await filled(exchanges(40), max_tokens=8000)

    view = await context.get_messages_for_request()

    assert json.loads(json.dumps(view)) == view
