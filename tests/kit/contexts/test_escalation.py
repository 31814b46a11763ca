"""Which messages compaction cuts, in which order, and which it spares."""

from typing import Any

import pytest

from amplifier_kit.contexts.compacting import CompactingContext
from amplifier_kit.messages.stored_messages import estimate_message, estimate_messages

Message = dict[str, Any]


def user(text: str, **metadata: Any) -> Message:
    return {"role": "user", "content": text, "metadata": {"timestamp": "then", **metadata}}


def reply(text: str, **metadata: Any) -> Message:
    return {"role": "assistant", "content": text, "metadata": {"timestamp": "then", **metadata}}


def system(text: str) -> Message:
    return {"role": "system", "content": text, "metadata": {"timestamp": "then"}}


def pair(call_id: str, size: int = 2000) -> list[Message]:
    return [
        {**reply(""), "tool_calls": [{"id": call_id, "tool": "read", "arguments": {}}]},
        {"role": "tool", "tool_call_id": call_id, "content": "y" * size, "metadata": {"timestamp": "then"}},
    ]


def pairs(count: int, size: int = 2000) -> list[Message]:
    return [message for number in range(count) for message in pair(f"call_{number}", size)]


class Compacted:
    """A history with the view of it that fits so many tokens; the target is `target` tokens exactly."""

    def __init__(self, view: list[Message], history: list[Message], stats: Message | None) -> None:
        self.view, self.history = view, history
        self.level = stats["strategy_level"] if stats else 0
        self.is_over_budget = bool(stats and stats["over_budget"])

    def truncated(self) -> list[str]:
        results = [message for message in self.view if message["role"] == "tool"]
        return [m["tool_call_id"] for m in results if m["content"].startswith("[truncated: ~")]

    def removed(self) -> list[int]:
        """The places in the history of what is gone."""
        shown = iter(self.view)
        current = next(shown, None)
        gone = []
        for place, message in enumerate(self.history):
            if current is not None and is_form_of(current, message):
                current = next(shown, None)
            else:
                gone.append(place)
        assert current is None
        return gone

    def stubs(self) -> list[int]:
        texts = [message["content"] for message in self.view if message["role"] == "user"]
        return [place for place, text in enumerate(texts) if text.startswith("[User message compacted")]


def is_form_of(shown: Message, message: Message) -> bool:
    keys = ("role", "tool_call_id", "tool_calls", "metadata")
    is_shorter = str(shown["content"]).startswith(("[truncated", "[User message"))
    return all(shown.get(key) == message.get(key) for key in keys) and (
        shown["content"] == message["content"]
        or (is_shorter and str(message["content"])[:20].replace("\n", " ") in str(shown["content"]))
    )


async def compact(history: list[Message], target: int, budget: int | None = None, **settings: Any) -> Compacted:
    budget = budget or estimate_messages(history)
    context = CompactingContext(
        max_tokens=budget,
        compact_threshold=0.0001,
        target_usage=(target + 0.5) / budget,
        compaction_notice_enabled=False,
        **settings,
    )
    await context.set_messages(history)
    view = await context.get_messages_for_request()
    return Compacted(view, history, context.compaction_stats)


class TestTruncation:
    """Results are about 530 tokens each, 90 when they are truncated."""

    HISTORY = (user("go"), *pairs(8), reply("done"))

    async def compact(self, saving: int, **settings: Any) -> Compacted:
        history = list(self.HISTORY)
        settings = {"protected_tool_results": 0, "protected_recent": 1.0, **settings}
        return await compact(history, estimate_messages(history) - saving, **settings)

    async def test_one_result_is_enough_when_little_is_to_be_saved(self) -> None:
        cut = await self.compact(10)

        assert (cut.truncated(), cut.level, cut.removed()) == (["call_0"], 1, [])

    async def test_the_first_level_takes_the_oldest_quarter(self) -> None:
        cut = await self.compact(2 * 400)

        assert (cut.truncated(), cut.level) == (["call_0", "call_1"], 1)

    async def test_the_second_level_takes_the_next_quarter(self) -> None:
        cut = await self.compact(3 * 400)

        assert (cut.truncated(), cut.level) == (["call_0", "call_1", "call_2"], 2)

    async def test_the_fourth_level_takes_the_third_quarter(self) -> None:
        cut = await self.compact(6 * 400)

        assert (cut.truncated(), cut.level) == ([f"call_{number}" for number in range(6)], 4)

    async def test_the_sixth_level_takes_all(self) -> None:
        history = [user("go"), *pairs(8), reply("done")]
        for message in history:
            message["metadata"] = {"openai:tool_search_items": []}  # nothing may be removed

        cut = await compact(history, estimate_messages(history) - 8 * 400, protected_tool_results=0)

        assert (cut.truncated(), cut.level) == ([f"call_{number}" for number in range(8)], 6)

    async def test_the_newest_results_are_spared(self) -> None:
        cut = await self.compact(5 * 400, protected_tool_results=3)

        assert (cut.truncated(), cut.level) == ([f"call_{number}" for number in range(5)], 4)

    async def test_nothing_is_removed_as_long_as_truncation_does(self) -> None:
        cut = await self.compact(4 * 400, protected_recent=0.0)

        assert (len(cut.truncated()), cut.removed(), cut.level) == (4, [], 2)

    async def test_truncation_that_would_not_shrink_is_left_out(self) -> None:
        history = [user("go"), *pairs(8, size=260), reply("x" * 4000), user("and?")]

        cut = await compact(history, estimate_messages(history) - 500, protected_tool_results=0, protected_recent=0.1)

        assert cut.truncated() == []

    async def test_the_length_that_stays_is_a_setting(self) -> None:
        cut = await self.compact(10, truncate_chars=7)

        assert cut.view[2]["content"].endswith("] yyyyyyy...")


class TestRemoval:
    async def test_the_oldest_replies_go_first(self) -> None:
        history = [user("go"), *(reply(f"{number} " + "x" * 400) for number in range(10)), user("and?")]

        cut = await compact(history, estimate_messages(history) - 300)

        assert (cut.removed(), cut.level) == ([1, 2, 3], 3)

    async def test_the_newest_share_is_spared_first(self) -> None:
        history = [user("go"), *(reply(f"{number} " + "x" * 400) for number in range(18)), user("and?")]
        size = estimate_message(history[1])

        spared = await compact(history, estimate_messages(history) - 13 * size, protected_recent=0.3)
        smaller = await compact(history, estimate_messages(history) - 15 * size, protected_recent=0.3)

        assert (spared.removed(), spared.level) == (list(range(1, 14)), 3)
        assert (smaller.removed(), smaller.level) == (list(range(1, 16)), 5)

    async def test_a_group_goes_as_a_whole(self) -> None:
        calls = {**reply(""), "tool_calls": [{"id": one, "tool": "read", "arguments": {}} for one in "abcdef"]}
        results = [{"role": "tool", "tool_call_id": one, "content": "y" * 40} for one in "abcdef"]
        history = [
            user("go"),
            calls,
            *results,
            *(reply(f"{number} " + "x" * 100) for number in range(20)),
            user("and?"),
        ]
        total = estimate_messages(history)

        for target in range(total - 700, total, 20):
            cut = await compact(history, target, protected_tool_results=0, protected_recent=0.1)
            kept = {place for place in range(1, 8) if place not in cut.removed()}
            assert kept in (set(), set(range(1, 8)))

    async def test_a_group_with_a_protected_result_stays(self) -> None:
        history = [user("go"), *pairs(6, size=100), *(reply("x" * 200) for _ in range(10)), user("and?")]

        cut = await compact(history, 700, protected_recent=0.0, protected_tool_results=2)

        assert [message["tool_call_id"] for message in cut.view if message["role"] == "tool"] == ["call_4", "call_5"]
        assert cut.truncated() == []

    async def test_a_group_in_the_protected_zone_stays_whole(self) -> None:
        calls = {**reply(""), "tool_calls": [{"id": one, "tool": "read", "arguments": {}} for one in "abcd"]}
        results = [{"role": "tool", "tool_call_id": one, "content": "y" * 40} for one in "abcd"]
        history = [user("go"), *(reply("x" * 400) for _ in range(10)), calls, *results]

        cut = await compact(history, 400, protected_tool_results=0, protected_recent=0.1)

        assert cut.view[-5:] == [calls, *results]

    async def test_calls_whose_results_may_still_come_stay(self) -> None:
        history = [user("go"), *(reply("x" * 400) for _ in range(10)), pair("late")[0]]

        cut = await compact(history, 60, protected_recent=0.0)

        assert cut.view == [history[0], history[-1]]

    async def test_system_messages_are_never_cut(self) -> None:
        systems = [system("a" * 2000), system("b" * 2000)]
        history = [systems[0], user("go"), reply("x" * 4000), systems[1], reply("x" * 4000), user("and?")]

        cut = await compact(history, 100, budget=1500, protected_recent=0.0)

        assert cut.view == [systems[0], user("go"), systems[1], user("and?")]

    @pytest.mark.parametrize("mark", [{"pinned": True}, {"openai:tool_search_items": [{"tool": "read"}]}])
    async def test_what_is_pinned_is_never_removed(self, mark: dict[str, Any]) -> None:
        state = reply("x" * 400, **mark)
        history = [user("go"), state, *(reply("x" * 400) for _ in range(10)), user("and?")]

        cut = await compact(history, 200, protected_recent=0.0)

        assert cut.view == [history[0], state, history[-1]]


class TestUserMessages:
    async def test_they_are_stubbed_after_the_replies_are_gone(self) -> None:
        long = [user(f"{number}\nplease " + "x" * 400) for number in range(4)]
        history = [long[0], reply("y" * 400), long[1], reply("y" * 400), long[2], reply("y" * 400), long[3]]

        cut = await compact(history, estimate_messages(history) - 450, protected_recent=0.0)

        assert cut.removed() == [1, 3, 5]
        assert (cut.stubs(), cut.level) == ([1, 2], 3)
        assert cut.view[1]["content"] == f'[User message compacted - original: "1 please {"x" * 41}..."]'

    async def test_the_first_the_last_and_short_ones_stay(self) -> None:
        long = "x" * 400
        history = [user(long), user("short"), user(long), user("y" * 80), user(long)]

        cut = await compact(history, estimate_messages(history) - 60, protected_recent=0.0)

        assert cut.stubs() == [2]
        assert (cut.view[0], cut.view[-1]) == (history[0], history[-1])

    async def test_what_a_hook_wrote_is_neither_first_nor_last(self) -> None:
        long = "x" * 400
        history = [
            user(long, source="hook"),
            user("first " + long),
            user(long),
            user("last " + long),
            user(long, source="hook"),
            user(long, ephemeral=True),
        ]

        cut = await compact(history, estimate_messages(history) - 60, protected_recent=0.0)

        assert cut.stubs() == [2]

    async def test_the_last_level_removes_stubs(self) -> None:
        history = [user("first"), *(user(f"{number:02d} " + "x" * 400) for number in range(60)), user("last")]

        cut = await compact(history, target=400, budget=1500, protected_recent=0.1)

        assert cut.level == 8
        assert (cut.view[0], cut.view[-1]) == (history[0], history[-1])
        assert estimate_messages(cut.view) <= 1500
        assert cut.removed() == list(range(1, 1 + len(cut.removed())))

    async def test_a_user_message_with_an_image_can_be_stubbed(self) -> None:
        image = {"type": "image", "source": {"type": "base64", "data": "A" * 400}}
        picture = {"role": "user", "content": [{"type": "text", "text": "what is this?"}, image], "metadata": {}}
        history = [user("first"), picture, user("last")]

        cut = await compact(history, 200, protected_recent=0.0)

        assert cut.view[1]["content"] == '[User message compacted - original: "what is this?..."]'


class TestLastResort:
    async def test_the_first_message_of_a_person_is_stubbed(self) -> None:
        history = [user("first " + "x" * 2000), user("last " + "x" * 2000)]

        cut = await compact(history, 100, budget=700, protected_recent=0.0)

        assert (cut.stubs(), cut.view[1], cut.is_over_budget) == ([0], history[1], False)

    async def test_a_result_with_a_persons_words_beside_it_is_neither_removed_nor_stubbed(self) -> None:
        def answered(call_id: str, words: str) -> list[Message]:
            block = {"type": "tool_result", "tool_use_id": call_id, "content": "y" * 2000}
            return [pair(call_id)[0], {**user(""), "content": [block, {"type": "text", "text": words}]}]

        history = [*answered("a", "first"), *answered("b", "second"), *answered("c", "third"), user("last")]

        cut = await compact(history, 100, budget=600, protected_recent=0.0)

        assert len(cut.view) == len(history)
        blocks = [message["content"] for message in cut.view[1::2]]
        assert [words["text"] for _, words in blocks] == ["first", "second", "third"]
        assert all(result["content"].startswith("[truncated") for result, _ in blocks)

    async def test_short_user_messages_are_removed_oldest_first(self) -> None:
        history = [user("first"), *(user(f"{number:02d}") for number in range(60)), user("last")]

        cut = await compact(history, 100, budget=1000, protected_recent=0.0)

        assert estimate_messages(cut.view) <= 1000
        assert cut.removed() == list(range(1, 1 + len(cut.removed())))
        assert (cut.view[0], cut.view[-1], cut.level) == (history[0], history[-1], 8)

    async def test_protected_results_are_truncated_the_newest_last(self) -> None:
        history = [user("go"), *pairs(3), user("and?")]

        one_left = await compact(history, 100, budget=1200, protected_recent=1.0)
        none_left = await compact(history, 100, budget=600, protected_recent=1.0)

        assert (one_left.truncated(), one_left.is_over_budget) == (["call_0", "call_1"], False)
        assert (none_left.truncated(), none_left.is_over_budget) == (["call_0", "call_1", "call_2"], False)

    async def test_results_that_are_protected_are_intact_in_a_view_that_fits_without(self) -> None:
        history = [user("go"), *pairs(10), user("and?")]

        cut = await compact(history, 1600, protected_tool_results=3)

        intact = [m["tool_call_id"] for m in cut.view if m["role"] == "tool" and m["content"].startswith("yyy")]
        assert intact[-3:] == ["call_7", "call_8", "call_9"]

    async def test_what_is_left_above_the_budget_is_told(self) -> None:
        history = [system("s" * 4000), user("go"), user("last " + "x" * 4000)]

        cut = await compact(history, 100, budget=500)

        assert (cut.view, cut.is_over_budget, cut.level) == (history, True, 8)


async def test_what_is_gone_never_comes_back_and_what_is_short_stays_short() -> None:
    context = CompactingContext(max_tokens=3000, compaction_notice_enabled=False, protected_tool_results=1)
    gone: set[str] = set()
    short: set[str] = set()
    added = 0
    for number in range(60):
        for message in (user(f"{number} " + "q" * 100), *pair(f"call_{number}", 900), reply("x" * 100)):
            await context.add_message({**message, "metadata": {"timestamp": str(added)}})
            added += 1
        view = await context.get_messages_for_request()
        shown = {message["metadata"]["timestamp"]: str(message["content"]) for message in view}
        still_short = {stamp for stamp, text in shown.items() if text.startswith(("[truncated", "[User message"))}
        assert estimate_messages(view) <= 3000
        assert not gone & shown.keys()
        assert short & shown.keys() <= still_short
        gone |= {str(stamp) for stamp in range(added)} - shown.keys()
        short |= still_short
    assert gone
    assert short
