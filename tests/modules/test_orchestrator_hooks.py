"""What hooks answer is honoured by every orchestrator: each action at each point, with and without a coordinator."""

import asyncio
from typing import Any

import pytest
from module_folders import folders_of_type
from turns import FunctionTool, Stage, answer, calling, echo, mounted, orphans, texts_of

from amplifier_core import HookResult, ToolResult
from amplifier_core.models import ContextInjection
from amplifier_core.testing import EventRecorder

DENY = HookResult(action="deny", reason="not today")
DENY_SILENTLY = HookResult(action="deny")
ASK = HookResult(action="ask_user", approval_prompt="May it?")
STORE = HookResult(action="inject_context", context_injection="stored note")
SHOW_ONCE = HookResult(action="inject_context", context_injection="passing note", ephemeral=True)


@pytest.fixture(params=folders_of_type("orchestrator"), ids=lambda folder: folder.name)
async def orchestrator(request: pytest.FixtureRequest) -> Any:
    return await mounted(request.param)


@pytest.fixture(params=[True, False], ids=["coordinator", "alone"])
def with_coordinator(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def stage(with_coordinator: bool) -> Stage:
    """One round of a tool, then an answer."""
    return Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()], with_coordinator=with_coordinator)


@pytest.fixture
def plain(with_coordinator: bool) -> Stage:
    """An answer at once."""
    return Stage([answer()], with_coordinator=with_coordinator)


def modified(**changes: Any) -> Any:
    return lambda data: HookResult(action="modify", data={**data, **changes})


def deciding(decision: str, **stage: Any) -> Stage:
    """A stage whose user answers every question alike."""
    made = Stage(**stage)
    assert made.coordinator is not None
    made.coordinator.approval_system.request_approval.return_value = decision
    return made


def contents(stage: Stage) -> list[Any]:
    return [message["content"] for message in stage.messages]


class TestPromptSubmit:
    async def test_a_denied_prompt_is_answered_with_the_reason_and_leaves_no_trace(
        self, orchestrator: Any, plain: Stage
    ) -> None:
        plain.record().on("prompt:submit", DENY)

        assert await plain.run(orchestrator) == "Operation denied: not today"

        assert plain.messages == []
        assert plain.event_names == ["prompt:submit", "orchestrator:complete"]
        assert plain.payload("orchestrator:complete")["status"] == "incomplete"
        assert plain.payload("orchestrator:complete")["turn_count"] == 0

    async def test_a_denial_without_a_reason_says_so(self, orchestrator: Any, plain: Stage) -> None:
        plain.on("prompt:submit", DENY_SILENTLY)

        assert await plain.run(orchestrator) == "Operation denied: no reason given"

    async def test_a_changed_prompt_is_the_one_that_is_asked(self, orchestrator: Any, plain: Stage) -> None:
        plain.record().on("prompt:submit", modified(prompt="Good day"))

        await plain.run(orchestrator, "Hello")

        assert plain.messages[0]["content"] == "Good day"
        assert plain.payload("execution:start")["prompt"] == "Good day"

    @pytest.mark.parametrize("changes", [{"prompt": "G", "redaction": {"masked": 1}}, {"prompt": 7}, {"other": "G"}])
    async def test_a_masked_or_unusable_prompt_is_not(self, orchestrator: Any, plain: Stage, changes: Any) -> None:
        plain.on("prompt:submit", modified(**changes))

        await plain.run(orchestrator, "Hello")

        assert plain.messages[0]["content"] == "Hello"

    async def test_a_stored_injection_comes_before_the_prompt(self, orchestrator: Any, plain: Stage) -> None:
        plain.on("prompt:submit", STORE)

        await plain.run(orchestrator)

        assert contents(plain)[:2] == ["stored note", "Hello"]
        assert plain.messages[0]["role"] == "system"
        assert plain.messages[0]["metadata"]["source"] == "hook"
        assert plain.messages[0]["metadata"]["event"] == "prompt:submit"

    async def test_an_ephemeral_injection_is_in_the_first_request_and_not_stored(
        self, orchestrator: Any, stage: Stage
    ) -> None:
        stage.on("prompt:submit", SHOW_ONCE)

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[0]) == ["Hello", "passing note"]
        assert "passing note" not in str(stage.messages)

    async def test_without_a_coordinator_a_question_counts_as_denied(self, orchestrator: Any) -> None:
        stage = Stage([answer()], with_coordinator=False).on("prompt:submit", ASK)

        assert await stage.run(orchestrator) == "Operation denied: No approval system available"

    @pytest.mark.parametrize(
        ("decision", "text"), [("Allow", "done"), ("Deny", "Operation denied: User denied: May it?")]
    )
    async def test_the_user_decides(self, orchestrator: Any, decision: str, text: str) -> None:
        stage = deciding(decision, responses=[answer()]).on("prompt:submit", ASK)

        assert await stage.run(orchestrator) == text


class TestProviderRequest:
    async def test_a_denied_request_ends_the_turn_with_the_reason(self, orchestrator: Any, plain: Stage) -> None:
        plain.record().on("provider:request", DENY)

        assert await plain.run(orchestrator) == "Operation denied: not today"

        assert plain.provider.call_count == 0
        assert plain.payload("execution:end")["response"] == "Operation denied: not today"
        assert plain.payload("orchestrator:complete")["status"] == "incomplete"

    async def test_changed_data_is_ignored(self, orchestrator: Any, plain: Stage) -> None:
        plain.on("provider:request", modified(messages=[], provider="other", model="larger"))

        await plain.run(orchestrator)

        assert texts_of(plain.provider.requests[0]) == ["Hello"]

    async def test_a_stored_injection_is_visible_in_this_very_request(self, orchestrator: Any, plain: Stage) -> None:
        plain.on("provider:request", STORE)

        await plain.run(orchestrator)

        assert texts_of(plain.provider.requests[0]) == ["Hello", "stored note"]
        assert contents(plain)[:2] == ["Hello", "stored note"]

    async def test_an_ephemeral_injection_is_in_this_request_alone(self, orchestrator: Any, stage: Stage) -> None:
        seen = []

        def first_time(data: dict[str, Any]) -> HookResult | None:
            seen.append(data)
            return SHOW_ONCE if len(seen) == 1 else None

        stage.on("provider:request", first_time)

        await stage.run(orchestrator)

        first, second = map(texts_of, stage.provider.requests)
        assert first == ["Hello", "passing note"]
        assert "passing note" not in second
        assert "passing note" not in str(stage.messages)

    @pytest.mark.parametrize(("decision", "calls"), [("Allow", 1), ("Deny", 0)])
    async def test_the_user_decides(self, orchestrator: Any, decision: str, calls: int) -> None:
        stage = deciding(decision, responses=[answer()]).on("provider:request", ASK)

        await stage.run(orchestrator)

        assert stage.provider.call_count == calls


class TestToolPre:
    async def test_a_denied_call_is_answered_and_has_no_tool_post(self, orchestrator: Any, stage: Stage) -> None:
        stage.record().on("tool:pre", DENY)

        assert await stage.run(orchestrator) == "done"

        assert stage.tools["echo"].inputs == []
        assert "not today" in stage.results[0]
        assert "tool:post" not in stage.event_names

    async def test_changed_input_is_run_and_reported_while_the_stored_call_stays(
        self, orchestrator: Any, stage: Stage
    ) -> None:
        stage.record().on("tool:pre", modified(tool_input={"n": 2}))

        await stage.run(orchestrator)

        assert stage.tools["echo"].inputs == [{"n": 2}]
        assert stage.payload("tool:post")["tool_input"] == {"n": 2}
        assert stage.messages[1]["tool_calls"][0]["arguments"] == {"n": 1}

    @pytest.mark.parametrize("changes", [{"tool_input": {"n": "***"}, "redaction": {}}, {"tool_input": [1]}])
    async def test_masked_or_unusable_input_is_not(self, orchestrator: Any, stage: Stage, changes: Any) -> None:
        stage.on("tool:pre", modified(**changes))

        await stage.run(orchestrator)

        assert stage.tools["echo"].inputs == [{"n": 1}]

    async def test_without_a_coordinator_a_question_counts_as_denied(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()], with_coordinator=False).on("tool:pre", ASK)

        await stage.run(orchestrator)

        assert stage.tools["echo"].inputs == []
        assert "No approval system available" in stage.results[0]

    @pytest.mark.parametrize(("decision", "runs"), [("Allow always", 1), ("Deny", 0), ("Whatever", 0)])
    async def test_the_user_decides(self, orchestrator: Any, decision: str, runs: int) -> None:
        stage = deciding(decision, responses=[calling(("c1", "echo")), answer()], tools=[echo()])
        stage.on("tool:pre", ASK)

        await stage.run(orchestrator)

        assert len(stage.tools["echo"].inputs) == runs


class TestToolPost:
    @pytest.mark.parametrize("verdict", [DENY, ASK], ids=["deny", "ask_user"])
    async def test_a_denial_after_the_fact_is_only_logged(
        self, orchestrator: Any, stage: Stage, verdict: HookResult, caplog: pytest.LogCaptureFixture
    ) -> None:
        if stage.coordinator is not None:
            stage.coordinator.approval_system.request_approval.return_value = "Deny"
        stage.on("tool:post", verdict)

        assert await stage.run(orchestrator) == "done"

        assert stage.results == ['{"n": 1}']
        assert any("denies 'echo' after it ran" in record.message for record in caplog.records)

    @pytest.mark.parametrize("decision", ["Allow", "Deny"])
    async def test_a_replaced_result_stays_replaced_whatever_the_user_is_asked_then(
        self, orchestrator: Any, stage: Stage, decision: str
    ) -> None:
        if stage.coordinator is not None:
            stage.coordinator.approval_system.request_approval.return_value = decision
        stage.on("tool:post", modified(result="masked"))
        stage.on("tool:post", ASK)

        await stage.run(orchestrator)

        assert stage.results == ["masked"]

    async def test_an_untouched_result_is_stored_as_the_tool_serialises_it(
        self, orchestrator: Any, stage: Stage
    ) -> None:
        stage.on("tool:post", HookResult())

        await stage.run(orchestrator)

        assert stage.results == [ToolResult(output={"n": 1}).get_serialized_output()]

    @pytest.mark.parametrize(
        ("change", "stored"),
        [
            ({"result": {"a": 1}}, '{"a": 1}'),
            ({"result": [1, "ü"]}, '[1, "ü"]'),
            ({"result": {"success": True, "output": "shorter", "error": None}}, "shorter"),
            ({"result": {"success": False, "output": None, "error": {"message": "no"}}}, "no"),
            ({"result": "plain"}, "plain"),
            ({"result": 7}, "7"),
            ({"tool_result": {"b": 2}}, '{"b": 2}'),
            ({"result": {"a": 1}, "tool_result": {"b": 2}}, '{"a": 1}'),
            ({"result": {"success": True, "output": {"n": 1}, "error": None}}, '{"n": 1}'),
            ({"result": None, "tool_result": None}, '{"n": 1}'),
            ({"result": {"a": 1}, "redaction": {}}, '{"n": 1}'),
        ],
    )
    async def test_a_replaced_result_is_what_the_model_is_shown(
        self, orchestrator: Any, stage: Stage, change: dict[str, Any], stored: str
    ) -> None:
        stage.on("tool:post", modified(**change))

        await stage.run(orchestrator)

        assert stage.results == [stored]

    async def test_a_handler_that_returns_the_result_alone_replaces_it(self, orchestrator: Any, stage: Stage) -> None:
        stage.on("tool:post", HookResult(action="modify", data={"result": {"a": 1}}))

        await stage.run(orchestrator)

        assert stage.results == ['{"a": 1}']


class TestInjectionsAroundTools:
    @pytest.fixture
    def batch(self, with_coordinator: bool) -> Stage:
        """Two calls of which the first takes longer."""

        async def slowly(input: dict[str, Any]) -> str:
            await asyncio.sleep(0.02)
            return "slow"

        tools = [FunctionTool("slow", slowly), FunctionTool("quick", lambda input: "quick")]
        return Stage([calling(("c1", "slow"), ("c2", "quick")), answer()], tools, with_coordinator=with_coordinator)

    async def test_stored_injections_follow_the_whole_batch_in_call_order_pre_before_post(
        self, orchestrator: Any, batch: Stage
    ) -> None:
        def note(event: str) -> Any:
            return lambda data: HookResult(action="inject_context", context_injection=f"{event} {data['tool_name']}")

        batch.on("tool:pre", note("before")).on("tool:post", note("after"))

        await batch.run(orchestrator)

        assert contents(batch)[2:8] == ["slow", "quick", "before slow", "after slow", "before quick", "after quick"]
        assert list(orphans(batch.messages)) == []

    @pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
    async def test_ephemeral_injections_are_in_the_next_request_alone(
        self, orchestrator: Any, with_coordinator: bool, event: str
    ) -> None:
        responses = [calling(("c1", "echo")), calling(("c2", "other")), answer()]
        stage = Stage(responses, [echo(), echo("other")], with_coordinator=with_coordinator)
        stage.on(event, lambda data: SHOW_ONCE if data["tool_name"] == "echo" else None)

        await stage.run(orchestrator)

        seen = ["passing note" in texts_of(request) for request in stage.provider.requests]
        assert seen == [False, True, False]
        assert "passing note" not in str(stage.messages)

    async def test_text_for_the_last_tool_result_is_appended_to_it_in_the_request_only(
        self, orchestrator: Any, stage: Stage
    ) -> None:
        stage.on("tool:post", SHOW_ONCE.model_copy(update={"append_to_last_tool_result": True}))

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[1])[-1] == '{"n": 1}\n\npassing note'
        assert stage.results == ['{"n": 1}']

    async def test_it_becomes_a_block_where_the_result_has_blocks(self, orchestrator: Any) -> None:
        result = ToolResult(output="x", content=[{"type": "text", "text": "shown"}])
        stage = Stage([calling(("c1", "look")), answer()], [FunctionTool("look", lambda input: result)])
        stage.on("tool:post", SHOW_ONCE.model_copy(update={"append_to_last_tool_result": True}))

        await stage.run(orchestrator)

        last = stage.provider.requests[1].messages[-1]
        assert [block.text for block in last.content] == ["shown", "passing note"]
        assert stage.results == [[{"type": "text", "text": "shown"}]]

    async def test_it_is_a_message_of_its_own_where_no_tool_result_is_last(
        self, orchestrator: Any, plain: Stage
    ) -> None:
        result = SHOW_ONCE.model_copy(update={"append_to_last_tool_result": True, "context_injection_role": "user"})
        plain.on("provider:request", result)

        await plain.run(orchestrator)

        last = plain.provider.requests[0].messages[-1]
        assert (last.role, last.content) == ("user", "passing note")
        assert last.metadata == {"ephemeral": True, "source": "hook"}

    async def test_what_provider_request_injects_comes_before_what_was_queued(
        self, orchestrator: Any, stage: Stage
    ) -> None:
        def once(text: str) -> HookResult:
            return HookResult(action="inject_context", context_injection=text, ephemeral=True)

        stage.on("tool:pre", once("from pre")).on("tool:post", once("from post"))
        stage.on("provider:request", lambda data: once("from request") if len(data["messages"]) > 1 else None)

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[1])[-3:] == ["from request", "from pre", "from post"]

    async def test_what_one_turn_queued_does_not_reach_the_next(self, orchestrator: Any, plain: Stage) -> None:
        plain.on("prompt:submit", lambda data: SHOW_ONCE if data["prompt"] == "first" else None)
        plain.on("provider:request", lambda data: DENY if data["messages"][-1]["content"] == "first" else None)

        await plain.run(orchestrator, "first")
        await plain.run(orchestrator, "second")

        assert "passing note" not in texts_of(plain.provider.requests[0])

    async def test_stored_and_ephemeral_items_of_several_hooks_go_their_own_ways(
        self, orchestrator: Any, plain: Stage
    ) -> None:
        plain.on("provider:request", STORE).on("provider:request", SHOW_ONCE)

        await plain.run(orchestrator)

        assert texts_of(plain.provider.requests[0]) == ["Hello", "stored note", "passing note"]
        assert contents(plain)[:2] == ["Hello", "stored note"]

    async def test_empty_injections_change_nothing(self, orchestrator: Any, plain: Stage) -> None:
        empty = [ContextInjection(content=""), ContextInjection(content="", ephemeral=True)]
        plain.on("provider:request", HookResult(action="inject_context", context_injections=empty))

        await plain.run(orchestrator)

        assert texts_of(plain.provider.requests[0]) == ["Hello"]

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:post"])
    async def test_what_the_session_has_no_room_for_is_left_out(self, orchestrator: Any, event: str) -> None:
        stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()]).record()
        items = [ContextInjection(content=text, ephemeral=True) for text in ("z" * 20_000, "short note")]
        stage.on(event, HookResult(action="inject_context", context_injections=items, ephemeral=True))

        await stage.run(orchestrator)

        sent = [text for request in stage.provider.requests for text in texts_of(request)]
        assert "short note" in sent
        assert not any("zzz" in text for text in sent)
        assert "injection_size_limit" in {data["reason"] for name, data in stage.events if name == "policy:violation"}

    async def test_alone_it_is_left_out_too(self, orchestrator: Any) -> None:
        stage = Stage([answer()]).on("prompt:submit", SHOW_ONCE.model_copy(update={"context_injection": "z" * 20_000}))

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[0]) == ["Hello"]


class TestOtherPoints:
    EVENTS = (
        "execution:start",
        "provider:response",
        "content_block:start",
        "content_block:end",
        "tool:error",
        "prompt:complete",
        "orchestrator:complete",
        "execution:end",
    )

    @pytest.mark.parametrize("event", EVENTS)
    async def test_no_answer_counts_anywhere_else(self, orchestrator: Any, with_coordinator: bool, event: str) -> None:
        responses = [calling(("c1", "echo", {"n": 1}), ("c2", "missing")), answer()]
        quiet = Stage(responses, [echo()], with_coordinator=with_coordinator)
        loud = Stage(responses, [echo()], with_coordinator=with_coordinator)
        for result in (ASK, STORE, SHOW_ONCE, DENY):
            loud.on(event, result)
        loud.on(event, modified(response="changed", prompt="changed", block={}, result="changed"))

        texts = [await quiet.run(orchestrator), await loud.run(orchestrator)]

        assert texts == ["done", "done"]
        assert loud.messages == quiet.messages
        assert [texts_of(r) for r in loud.provider.requests] == [texts_of(r) for r in quiet.provider.requests]


class TestFailures:
    async def test_an_injection_that_is_too_large_is_left_out(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()])
        huge = HookResult(action="inject_context", context_injection="x" * 20_000)
        for event in ("prompt:submit", "provider:request", "tool:pre", "tool:post"):
            stage.on(event, huge)
        violations = EventRecorder()
        stage.hooks.register("policy:violation", violations.record)

        assert await stage.run(orchestrator) == "done"

        assert stage.results == ['{"n": 1}']
        assert stage.context.roles == ["user", "assistant", "tool", "assistant"]
        assert len(violations.events) == 5  # two requests

    async def test_an_approval_that_fails_counts_as_denied(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])
        assert stage.coordinator is not None
        stage.coordinator.approval_system.request_approval.side_effect = OSError("no terminal")
        stage.on("tool:pre", ASK)

        assert await stage.run(orchestrator) == "done"

        assert stage.tools["echo"].inputs == []
        assert "no terminal" in stage.results[0]

    async def test_an_approval_answered_with_nonsense_counts_as_denied(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()]).on("tool:pre", ASK)

        async def nonsense(result: Any, event: str, hook_name: str) -> None:
            return None

        stage.coordinator.process_hook_result = nonsense  # type: ignore[union-attr,method-assign,assignment]

        await stage.run(orchestrator)

        assert stage.tools["echo"].inputs == []
