"""Hook points: what is emitted, what is left out because nobody could notice, and what answers amount to."""

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from amplifier_core import HookRegistry, HookResult, Message, ModuleCoordinator
from amplifier_core.correlation import current_request_id, reset_request_id, resolve_request_id
from amplifier_core.testing import EventRecorder, MockCoordinator
from amplifier_kit.loops.hook_points import Ephemeral, HookPoints, apply_ephemerals


def points(hooks: Any, coordinator: Any = None, context: Any = None) -> HookPoints:
    return HookPoints(hooks, coordinator, context)


def answering(result: HookResult) -> Any:
    async def handler(event: str, data: dict[str, Any]) -> HookResult:
        return result

    return handler


class TestReach:
    def test_an_event_without_listeners_reaches_nobody_on_the_kernels_registry(self) -> None:
        hooks = HookRegistry()
        there = points(hooks)
        hooks.register("tool:pre", answering(HookResult()))

        assert there.reaches("tool:pre")
        assert not there.reaches("tool:post")

    def test_it_does_wherever_else_code_could_be_watching(self) -> None:
        class Watching(HookRegistry):
            pass

        wrapped = HookRegistry()
        wrapped.emit = wrapped.emit  # type: ignore[method-assign]
        pretending = HookRegistry()
        pretending.has_handlers = lambda event: False  # type: ignore[method-assign]

        for hooks in (Watching(), wrapped, pretending, EventRecorder()):
            assert points(hooks).reaches("tool:post")

    def test_it_does_when_the_kernels_own_method_is_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        emit = HookRegistry.emit
        monkeypatch.setattr(HookRegistry, "emit", lambda self, event, data: emit(self, event, data))

        assert points(HookRegistry()).reaches("tool:post")

    def test_a_registry_that_cannot_say_at_once_who_listens_counts_as_heard(self) -> None:
        hooks = AsyncMock()

        assert points(hooks).listens("tool:post") is True
        hooks.has_handlers.assert_not_called()

    async def test_a_failed_call_is_closed_even_if_nobody_listens(self) -> None:
        resolve_request_id("llm:request")
        assert current_request_id()

        await points(HookRegistry()).emit("provider:error", {"provider": "mock"})

        assert current_request_id() is None
        reset_request_id()


class TestDecisions:
    async def test_messages_for_the_user_are_shown(self) -> None:
        class Registry:
            async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
                return HookResult(action="deny" if event == "tool:pre" else "continue", user_message="careful")

        coordinator = MockCoordinator()
        there = points(Registry(), coordinator)

        await there.decide("tool:pre", {}, "echo")
        await there.decide("tool:post", {}, "echo")

        shown = coordinator.display_system.show_message.call_args_list
        assert [call.args for call in shown] == [("careful", "info", "hook:echo")] * 2

    async def test_a_display_that_fails_changes_no_decision(self) -> None:
        class Broken:
            async def process_hook_result(self, *_: Any) -> Any:
                raise OSError("no display")

        hooks = HookRegistry()
        hooks.register("tool:pre", answering(HookResult(action="deny", reason="no", user_message="careful")))

        decision = await points(hooks, Broken()).decide("tool:pre", {})

        assert (decision.denied, decision.reason) == (True, "no")

    async def test_a_question_about_a_changed_call_shows_what_would_run(self) -> None:
        hooks, coordinator = HookRegistry(), MockCoordinator()
        hooks.register("tool:pre", answering(HookResult(action="modify", data={"tool_input": {"n": 2}})))
        hooks.register("tool:pre", answering(HookResult(action="ask_user", approval_prompt="Run it?")))
        asked: list[str] = []

        class Approver:
            async def request_approval(self, prompt: str, *answers: Any) -> str:
                asked.append(prompt)
                return "Allow once"

        coordinator.approval_system = Approver()
        payload = {"tool_name": "count", "tool_call_id": "c1", "tool_input": {"n": 1}}

        decision = await points(hooks, coordinator).offer("tool:pre", payload, "count", original={"n": 1})

        assert asked == ['Run it?\n\ncount: {"n": 2}']
        assert decision.changed("tool_input", dict, {"n": 1}) == {"n": 2}

    async def test_an_equal_value_is_no_change(self) -> None:
        hooks = HookRegistry()
        hooks.register("tool:pre", answering(HookResult(action="modify", data={"tool_input": {"n": 1}})))

        decision = await points(hooks).decide("tool:pre", {"tool_input": {"n": 1}})

        assert decision.changed("tool_input", dict, {"n": 1}) is None

    async def test_a_coordinator_that_hands_injections_back_stores_them_once(self) -> None:
        class Elsewhere:
            async def process_hook_result(self, result: Any, event: str, hook_name: str) -> Any:
                return result

        hooks = HookRegistry()
        hooks.register("tool:pre", answering(HookResult(action="inject_context", context_injection="stored")))
        there = points(hooks, Elsewhere())

        assert (await there.decide("tool:pre", {})).has_stored
        assert there.take() == []

    async def test_what_is_queued_is_taken_once(self) -> None:
        hooks = HookRegistry()
        note = HookResult(action="inject_context", context_injection="note", ephemeral=True)
        hooks.register("tool:pre", answering(note))
        there = points(hooks, MockCoordinator())

        decision = await there.decide("tool:pre", {})

        assert not decision.has_stored
        assert (there.take(), there.take()) == ([Ephemeral("note")], [])

    async def test_answers_that_are_no_dicts_are_not_collected(self) -> None:
        class Registry:
            async def emit_and_collect(self, event: str, data: Any, timeout: float) -> Any:  # noqa: ASYNC109
                return [{"score": timeout}, None, "text"]

        assert await points(Registry()).collect("decision:x", {}, 0.5) == [{"score": 0.5}]


class TestEphemerals:
    @pytest.mark.parametrize("make", [SimpleNamespace, MockCoordinator, partial(MagicMock, spec=ModuleCoordinator)])
    async def test_they_are_queued_also_if_a_stand_in_has_no_more_to_say_about_them(self, make: Any) -> None:
        hooks = HookRegistry()
        hooks.register(
            "tool:post", answering(HookResult(action="inject_context", context_injection="note", ephemeral=True))
        )
        coordinator = make()
        coordinator.process_hook_result = AsyncMock(return_value=HookResult())
        there = points(hooks, coordinator)

        decision = await there.decide("tool:post", {}, "mock_tool")

        assert not decision.has_stored
        assert [ephemeral.text for ephemeral in there.take()] == ["note"]

    async def test_one_that_the_coordinator_denies_is_not(self) -> None:
        hooks = HookRegistry()
        hooks.register(
            "tool:post", answering(HookResult(action="inject_context", context_injection="note", ephemeral=True))
        )
        denial = HookResult(action="deny", reason="no")
        there = points(hooks, SimpleNamespace(process_hook_result=AsyncMock(return_value=denial)))

        await there.decide("tool:post", {}, "mock_tool")

        assert there.take() == []

    def test_without_any_the_messages_are_the_very_list(self) -> None:
        messages = [{"role": "user", "content": "Hello"}]

        assert apply_ephemerals(messages, []) is messages

    def test_only_what_changes_is_copied(self) -> None:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}, {"role": "tool", "content": "result"}]

        view = apply_ephemerals(messages, [Ephemeral("note", append_to_last_tool_result=True), Ephemeral("more")])

        assert [message["content"] for message in view] == ["Hello", "result\n\nnote", "more"]
        assert view[0] is messages[0]
        assert messages[1] == {"role": "tool", "content": "result"}
        assert len(messages) == 2

    def test_a_result_without_content_takes_the_text_alone_after_a_blank_line(self) -> None:
        view = apply_ephemerals([{"role": "tool", "content": None}], [Ephemeral("n", append_to_last_tool_result=True)])

        assert view == [{"role": "tool", "content": "\n\nn"}]

    def test_a_context_may_hand_out_the_kernels_messages(self) -> None:
        result = Message(role="tool", tool_call_id="c1", content="result")

        view = apply_ephemerals([result], [Ephemeral("note", append_to_last_tool_result=True)])  # type: ignore[list-item]

        assert Message.model_validate(view[0]) == result.model_copy(update={"content": "result\n\nnote"})
        assert result.content == "result"

    def test_an_empty_conversation_gets_a_message(self) -> None:
        view = apply_ephemerals([], [Ephemeral("note", "user", append_to_last_tool_result=True)])

        metadata = {"ephemeral": True, "source": "hook"}
        assert view == [{"role": "user", "content": "note", "metadata": metadata}]


async def test_an_injection_without_a_coordinator_or_a_writable_context_is_dropped() -> None:
    hooks = HookRegistry()
    hooks.register("tool:pre", answering(HookResult(action="inject_context", context_injection="note")))

    assert not (await points(hooks, None, SimpleNamespace()).decide("tool:pre", {})).denied
