"""What a compacting context keeps, and the budget of its views."""

import asyncio
import logging
import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import ModelInfo, ProviderInfo
from amplifier_core.testing import EventRecorder
from amplifier_kit.contexts.compacting import CompactingContext

Message = dict[str, Any]


def chat(count: int, size: int = 200) -> list[Message]:
    """Short questions and long answers in turn."""
    return [
        {"role": "assistant", "content": f"{number} " + "x" * size}
        if number % 2
        else {"role": "user", "content": f"question {number}"}
        for number in range(count)
    ]


async def filled(messages: list[Message], **settings: Any) -> CompactingContext:
    context = CompactingContext(**settings)
    for message in messages:
        await context.add_message(message)
    return context


class TestStorage:
    async def test_messages_come_back_in_order_with_their_content(self) -> None:
        context = await filled(chat(5))

        assert [message["content"] for message in await context.get_messages()] == [m["content"] for m in chat(5)]

    async def test_a_message_is_stamped_with_the_time_in_milliseconds(self) -> None:
        context = await filled(chat(1))

        stamp = (await context.get_messages())[0]["metadata"]["timestamp"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", stamp)

    @pytest.mark.parametrize("metadata", [{"timestamp": "then"}, {"timestamp": "then", "source": "hook"}])
    async def test_a_stamp_that_is_there_is_kept(self, metadata: Message) -> None:
        context = await filled([{"role": "user", "content": "hi", "metadata": metadata}])

        assert (await context.get_messages())[0]["metadata"] == metadata

    async def test_other_metadata_is_kept_and_none_is_fine(self) -> None:
        context = await filled(
            [
                {"role": "user", "content": "hi", "metadata": {"source": "hook"}},
                {"role": "user", "content": "hi", "metadata": None},
            ]
        )

        first, second = await context.get_messages()
        assert (first["metadata"]["source"], "timestamp" in second["metadata"]) == ("hook", True)

    async def test_the_callers_message_is_not_changed(self) -> None:
        message = {"role": "user", "content": "hi", "metadata": {"source": "hook"}}

        await filled([message])

        assert message == {"role": "user", "content": "hi", "metadata": {"source": "hook"}}

    @pytest.mark.parametrize(
        "message", [{}, None, "hi", [], {"role": ""}, {"role": None}, {"role": 3}, {"content": "x"}]
    )
    async def test_what_is_no_message_is_refused(self, message: Any) -> None:
        context = CompactingContext()

        with pytest.raises(ValueError, match="role"):
            await context.add_message(message)

        assert await context.get_messages() == []

    async def test_a_message_of_any_size_is_kept(self) -> None:
        context = await filled([{"role": "user", "content": "x" * 1_000_000}], max_tokens=100)

        assert len((await context.get_messages())[0]["content"]) == 1_000_000

    async def test_what_is_returned_is_a_copy(self) -> None:
        context = await filled(chat(2))

        messages = await context.get_messages()
        messages[0]["content"] = "changed"
        messages.clear()

        assert [message["content"] for message in await context.get_messages()] == [m["content"] for m in chat(2)]

    async def test_setting_messages_replaces_the_history_and_keeps_timestamps(self) -> None:
        context = await filled(chat(3))
        messages = [{"role": "user", "content": "old", "metadata": {"timestamp": "then"}}]

        await context.set_messages(messages)

        assert await context.get_messages() == messages
        assert (await context.get_messages())[0] is not messages[0]

    async def test_setting_a_bad_message_changes_nothing(self) -> None:
        context = await filled(chat(3))

        with pytest.raises(ValueError, match="role"):
            await context.set_messages([*chat(1), {"content": "whose?"}])

        assert len(await context.get_messages()) == 3

    async def test_clearing_empties_history_and_views(self) -> None:
        context = await filled(chat(30), max_tokens=500, compaction_notice_enabled=False)
        await context.get_messages_for_request()

        await context.clear()

        assert (await context.get_messages(), await context.get_messages_for_request()) == ([], [])
        assert context.compaction_stats is None

    @pytest.mark.parametrize("renewal", ["set", "clear"])
    async def test_setting_and_clearing_forget_what_was_decided(self, renewal: str) -> None:
        context = await filled(chat(30), max_tokens=500, compaction_notice_enabled=False)
        cut = await context.get_messages_for_request()
        assert len(cut) < 30

        if renewal == "set":
            await context.set_messages(chat(4, size=1))
        else:
            await context.clear()
            for message in chat(4, size=1):
                await context.add_message(message)

        assert len(await context.get_messages_for_request()) == 4

    async def test_the_older_methods_have_nothing_to_do(self) -> None:
        context = await filled(chat(2))

        assert await context.should_compact() is False
        await context.compact()
        assert len(await context.get_messages()) == 2

    async def test_every_setting_is_an_attribute(self) -> None:
        context = CompactingContext(
            max_tokens="4000", compaction_threshold=0.7, auto_compact="false", truncate_chars=None
        )

        assert (context.max_tokens, context.compact_threshold) == (4000, 0.7)
        assert (context.auto_compact, context.truncate_chars) == (False, 250)

    def test_a_keyword_that_does_not_exist_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="max_token"):
            CompactingContext(max_token=3)


class TestSubclasses:
    """The way the ecosystem's contexts build on this one."""

    class Loading(CompactingContext):
        def __init__(self, loaded: list[Message], **settings: Any) -> None:
            super().__init__(**settings)
            self.messages = loaded

    async def test_a_list_that_a_subclass_assigns_is_the_history(self) -> None:
        context = self.Loading(chat(3))

        assert (await context.get_messages(), await context.get_messages_for_request()) == (chat(3), chat(3))

    async def test_a_message_that_a_subclass_appends_is_in_the_next_view(self) -> None:
        context = self.Loading(chat(3))
        await context.get_messages_for_request()

        context.messages.append({"role": "user", "content": "more"})

        assert (await context.get_messages_for_request())[-1] == {"role": "user", "content": "more"}

    @pytest.mark.parametrize(
        "change",
        [
            lambda messages: messages.__setitem__(1, {"role": "user", "content": "new"}),
            lambda messages: messages.insert(0, {"role": "user", "content": "new"}),
            lambda messages: messages.pop(),
            lambda messages: messages.remove(messages[1]),
            lambda messages: messages.reverse(),
            lambda messages: messages.sort(key=lambda message: message["content"], reverse=True),
            lambda messages: messages.extend(chat(2)),
            lambda messages: messages.clear(),
            lambda messages: messages.__delitem__(slice(0, 2)),
            lambda messages: messages.__imul__(2),
        ],
        ids=["set", "insert", "pop", "remove", "reverse", "sort", "extend", "clear", "delete", "multiply"],
    )
    async def test_any_change_of_the_list_is_in_the_next_view(self, change: Any) -> None:
        context = self.Loading(chat(4))
        await context.get_messages_for_request()

        change(context.messages)

        view = await context.get_messages_for_request()
        assert len(view) == len(context.messages)
        assert all(one is other for one, other in zip(view, context.messages, strict=True))

    async def test_what_was_decided_about_messages_that_are_still_there_stays(self) -> None:
        context = self.Loading(chat(30), max_tokens=1100, compaction_notice_enabled=False)
        cut = await context.get_messages_for_request()
        assert len(cut) < 30

        context.messages = [*context.messages, {"role": "user", "content": "more"}]

        assert await context.get_messages_for_request() == [*cut, {"role": "user", "content": "more"}]

    def test_a_subclass_can_ask_what_a_list_takes(self) -> None:
        messages = chat(3)

        assert CompactingContext()._estimate_tokens(messages) == sum(len(str(message)) // 4 for message in messages)


def provider(window: Any, output: Any, way: str) -> Any:
    """A provider that tells what its model allows in one of the known ways."""
    if way == "get_model_info":
        info = ModelInfo(id="m", display_name="M", context_window=window, max_output_tokens=output)
        return SimpleNamespace(get_model_info=lambda: info)
    defaults = {"context_window": window, "max_output_tokens": output}
    return SimpleNamespace(get_info=lambda: ProviderInfo(id="p", display_name="P", defaults=defaults))


async def budget_of(request: dict[str, Any], **settings: Any) -> int:
    """The budget that a view is cut to, as its statistics tell."""
    context = CompactingContext(compaction_notice_enabled=False, **settings)
    await context.add_message({"role": "user", "content": "x" * 4_000_000})
    await context.get_messages_for_request(**request)
    assert context.compaction_stats is not None
    return int(context.compaction_stats["budget"])


class TestBudget:
    @pytest.mark.parametrize("way", ["get_model_info", "get_info"])
    @pytest.mark.parametrize(
        ("window", "output", "settings", "expected"),
        [
            (128_000, 16_000, {}, 115_904),
            (128_000, 16_000, {"max_tokens": 60_000, "max_tokens_explicit": True}, 60_000),
            (128_000, 16_000, {"max_tokens": 60_000}, 115_904),
            (128_000, 16_000, {"max_tokens": 500_000, "max_tokens_explicit": True}, 115_904),
            (6_000, 6_000, {}, 1_500),
            (128_000, 16_000, {"output_reserve_fraction": 1.0}, 107_904),
            (128_000, 16_000, {"output_reserve_fraction": 0}, 123_904),
        ],
    )
    async def test_the_model_of_the_provider_decides(
        self, way: str, window: int, output: int, settings: dict[str, Any], expected: int
    ) -> None:
        assert await budget_of({"provider": provider(window, output, way)}, **settings) == expected

    async def test_the_caller_outranks_the_provider(self) -> None:
        request = {"token_budget": 5000, "provider": provider(128_000, 16_000, "get_info")}

        assert await budget_of(request) == 5000

    @pytest.mark.parametrize("token_budget", [0, -5])
    async def test_a_budget_of_nothing_is_no_budget(self, token_budget: int) -> None:
        assert await budget_of({"token_budget": token_budget}, max_tokens=7000) == 7000

    async def test_a_provider_may_answer_with_dicts(self) -> None:
        talker = SimpleNamespace(get_model_info=lambda: {"context_window": 128_000, "max_output_tokens": 16_000})

        assert await budget_of({"provider": talker}) == 115_904

    @pytest.mark.parametrize(
        "unhelpful",
        [
            SimpleNamespace(),
            SimpleNamespace(get_model_info=lambda: None, get_info=lambda: None),
            SimpleNamespace(get_model_info=lambda: 1 / 0, get_info=lambda: 1 / 0),
            SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=None)),
            SimpleNamespace(get_info=lambda: SimpleNamespace(defaults={"context_window": 0, "max_output_tokens": 9})),
            SimpleNamespace(get_info=lambda: SimpleNamespace(defaults={"context_window": "8", "max_output_tokens": 9})),
        ],
        ids=["nothing", "none", "error", "no defaults", "zero", "text"],
    )
    async def test_a_provider_that_does_not_tell_leaves_the_configured_budget(self, unhelpful: Any) -> None:
        assert await budget_of({"provider": unhelpful}, max_tokens=7000) == 7000

    async def test_a_provider_that_would_have_to_be_awaited_is_asked_in_the_next_way(self) -> None:
        class Remote:
            async def get_model_info(self) -> ModelInfo:
                raise AssertionError("nobody awaits this")

            def get_info(self) -> ProviderInfo:
                defaults = {"context_window": 128_000, "max_output_tokens": 16_000}
                return ProviderInfo(id="p", display_name="P", defaults=defaults)

        assert await budget_of({"provider": Remote()}) == 115_904

    async def test_the_notice_takes_its_reserve_from_the_budget(self) -> None:
        context = await filled(chat(100), max_tokens=2000)

        await context.get_messages_for_request()

        assert context.compaction_stats is not None
        assert context.compaction_stats["budget"] == 1200

    async def test_a_reserve_larger_than_the_budget_is_ignored_with_one_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        context = await filled(chat(30), max_tokens=500)

        for _ in range(3):
            await context.get_messages_for_request()

        assert context.compaction_stats is not None
        assert context.compaction_stats["budget"] == 500
        assert caplog.text.count("compaction_notice_token_reserve") == 1


class TestMeter:
    async def used(self, context: CompactingContext, **usage: Any) -> None:
        await context.record_usage("llm:response", {"usage": usage})

    async def test_with_actual_numbers_they_decide_when_to_compact(self) -> None:
        context = await filled(chat(40), token_meter="actual", max_tokens=3000, compaction_notice_enabled=False)
        await self.used(context, input_tokens=100)

        assert len(await context.get_messages_for_request()) == 40

        await self.used(context, input_tokens=2500, cache_write_tokens=400)
        view = await context.get_messages_for_request()
        assert context._estimate_tokens(view) <= 1500

    @pytest.mark.parametrize(
        "usage", [None, {}, {"input_tokens": None}, {"input_tokens": "many"}, {"input_tokens": True}]
    )
    async def test_without_numbers_the_estimate_decides(self, usage: Any) -> None:
        context = await filled(chat(40), token_meter="actual", max_tokens=1000, compaction_notice_enabled=False)

        await context.record_usage("llm:response", {"usage": usage})

        assert len(await context.get_messages_for_request()) < 40

    async def test_with_the_estimate_numbers_do_not_count(self) -> None:
        context = await filled(chat(4), max_tokens=10_000)
        await self.used(context, input_tokens=1_000_000)

        assert await context.get_messages_for_request() == await context.get_messages()

    @pytest.mark.parametrize("renewal", ["set", "clear"])
    async def test_a_new_history_has_no_numbers(self, renewal: str) -> None:
        context = CompactingContext(token_meter="actual", max_tokens=1000, compaction_notice_enabled=False)
        await self.used(context, input_tokens=10)
        if renewal == "set":
            await context.set_messages(chat(40))
        else:
            await context.clear()
            for message in chat(40):
                await context.add_message(message)

        assert len(await context.get_messages_for_request()) < 40

    def test_an_unknown_meter_is_the_estimate(self, caplog: pytest.LogCaptureFixture) -> None:
        assert CompactingContext(token_meter="scales").token_meter == "estimate"
        assert "scales" in caplog.text

    async def test_each_decision_is_logged_with_its_numbers(self, caplog: pytest.LogCaptureFixture) -> None:
        context = await filled(chat(4), max_tokens=4321)

        with caplog.at_level(logging.DEBUG, "amplifier_kit"):
            await context.get_messages_for_request()

        assert re.search(r"4321 tokens, from max_tokens", caplog.text)
        assert re.search(r"\d+ of 3521 tokens \(estimate\), ratio 0\.\d+", caplog.text)


class TestSystemPrompt:
    async def test_the_factory_is_asked_for_every_view(self) -> None:
        context = await filled([{"role": "system", "content": "stored"}, *chat(2)])
        texts = iter(["one", "two"])

        async def factory() -> str:
            return next(texts)

        await context.set_system_prompt_factory(factory)

        for expected in ("one", "two"):
            view = await context.get_messages_for_request()
            assert [m["content"] for m in view if m["role"] == "system"] == [expected]
            assert view[0]["content"] == expected

    async def test_what_a_hook_injected_stays_in_its_place(self) -> None:
        injected = {"role": "system", "content": "Be brief.", "metadata": {"source": "hook"}}
        context = await filled([*chat(1), injected])
        await context.set_system_prompt_factory(lambda: "prompt")

        assert [message["content"] for message in await context.get_messages_for_request()][::2] == [
            "prompt",
            "Be brief.",
        ]

    async def test_while_its_text_stays_the_message_is_the_same_object(self) -> None:
        context = await filled(chat(1))
        await context.set_system_prompt_factory(lambda: "prompt")

        first, second = [await context.get_messages_for_request() for _ in range(2)]

        assert first[0] is second[0]

    async def test_a_factory_that_fails_leaves_the_last_text(self, caplog: pytest.LogCaptureFixture) -> None:
        context = await filled(chat(1))
        texts = iter(["prompt"])

        async def factory() -> str:
            try:
                return next(texts)
            except StopIteration:
                raise RuntimeError("no more") from None

        await context.set_system_prompt_factory(factory)
        await context.get_messages_for_request()

        assert (await context.get_messages_for_request())[0]["content"] == "prompt"
        assert "the last one is used" in caplog.text

    async def test_a_factory_that_never_succeeded_fails_the_request(self) -> None:
        context = await filled(chat(1))

        async def factory() -> str:
            raise RuntimeError("no prompt")

        await context.set_system_prompt_factory(factory)

        with pytest.raises(RuntimeError, match="no prompt"):
            await context.get_messages_for_request()

    async def test_without_the_factory_the_stored_prompt_is_back(self) -> None:
        context = await filled([{"role": "system", "content": "stored"}, *chat(1)])
        await context.set_system_prompt_factory(lambda: "prompt")
        await context.get_messages_for_request()

        await context.set_system_prompt_factory(None)

        assert (await context.get_messages_for_request())[0]["content"] == "stored"

    async def test_the_prompt_counts_in_the_size_of_a_view(self) -> None:
        context = await filled(chat(20), max_tokens=2000, compaction_notice_enabled=False)
        assert len(await context.get_messages_for_request()) == 20

        await context.set_system_prompt_factory(lambda: "p" * 6000)

        view = await context.get_messages_for_request()
        assert len(view) < 20
        assert context._estimate_tokens(view) <= 2000


class TestConcurrency:
    def test_messages_from_many_threads_are_all_kept(self) -> None:
        context = CompactingContext(max_tokens=2000, hooks=EventRecorder())
        start = threading.Barrier(10)

        def add_ten(thread: int) -> None:
            start.wait()
            for number in range(10):
                asyncio.run(context.add_message({"role": "user", "content": f"{thread}-{number} " + "x" * 200}))
                asyncio.run(context.get_messages_for_request())

        threads = [threading.Thread(target=add_ten, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        kept = [message["content"].split()[0] for message in asyncio.run(context.get_messages())]
        assert sorted(kept) == sorted(f"{thread}-{number}" for thread in range(10) for number in range(10))
        view = asyncio.run(context.get_messages_for_request())
        assert context.compaction_stats is not None
        assert context._estimate_tokens(view) <= 2000

    async def test_a_message_that_a_listener_adds_to_a_compaction_is_in_the_view(self) -> None:
        class Listener(EventRecorder):
            async def emit(self, event: str, data: Any) -> Any:
                if event == "context:pre_compact":
                    await context.add_message({"role": "user", "content": "by the way"})
                return await super().emit(event, data)

        context = await filled(chat(40), max_tokens=1000, compaction_notice_enabled=False, hooks=Listener())

        view = await context.get_messages_for_request()

        assert view[-1]["content"] == "by the way"
        assert context._estimate_tokens(view) <= 1000

    async def test_a_history_that_a_listener_replaces_is_the_one_of_the_view(self) -> None:
        class Listener(EventRecorder):
            async def emit(self, event: str, data: Any) -> Any:
                if event == "context:pre_compact":
                    await context.set_messages(chat(2, size=1))
                return await super().emit(event, data)

        context = await filled(chat(40), max_tokens=1000, hooks=Listener())

        assert await context.get_messages_for_request() == chat(2, size=1)
