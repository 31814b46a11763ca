"""loop-events: who chooses the tool, and what becomes of the choice."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_loop_events import EventDrivenOrchestrator
from turns import FunctionTool, Stage, answer, calling, echo, orphans

from amplifier_core import HookResult, ToolResult
from amplifier_core.testing import EventRecorder

NEEDS_PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@pytest.fixture
def orchestrator() -> EventDrivenOrchestrator:
    return EventDrivenOrchestrator({})


@pytest.fixture
def stage() -> Stage:
    """One call of `echo`; `other` and `open`, which needs a path, are mounted too."""
    tools = [
        echo(),
        FunctionTool("other", lambda input: "other ran"),
        FunctionTool("open", lambda input: "opened", NEEDS_PATH),
    ]
    return Stage([calling(("c1", "echo", {"n": 1})), answer()], tools).record()


def modified(**changes: Any) -> Callable[[dict[str, Any]], HookResult]:
    return lambda data: HookResult(action="modify", data={**data, **changes})


def tool_events(stage: Stage) -> list[str]:
    return [name for name in stage.event_names if name.startswith(("tool:", "error:", "decision:"))]


class TestSelecting:
    async def test_by_default_the_models_choice_runs(self, orchestrator: EventDrivenOrchestrator, stage: Stage) -> None:
        await stage.run(orchestrator)

        assert tool_events(stage) == ["tool:selecting", "tool:selected", "tool:pre", "tool:post"]
        asked = {"tool_name": "echo", "tool_input": {"n": 1}, "tool_call_id": "c1"}
        assert stage.payload("tool:selecting").items() >= asked.items()
        assert stage.payload("tool:selecting")["available_tools"] == ["echo", "other", "open"]
        told = {**asked, "tool": "echo", "source": "llm", "original_tool": None}
        assert stage.payload("tool:selected").items() >= told.items()

    @pytest.mark.parametrize(("reason", "text"), [("busy", "busy"), (None, "Tool execution denied by scheduler")])
    async def test_a_denied_call_does_not_run_and_is_not_selected(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage, reason: str | None, text: str
    ) -> None:
        stage.on("tool:selecting", HookResult(action="deny", reason=reason))

        await stage.run(orchestrator)

        assert stage.tools["echo"].inputs == []
        assert stage.results == [f"Error: {text}"]
        assert tool_events(stage) == ["tool:selecting"]

    @pytest.mark.parametrize(
        "respond",
        [
            modified(tool_name="other"),
            modified(tool="other"),
            HookResult(action="modify", data={"tool": "other"}),
            HookResult(action="modify", data={"tool_name": "other"}),
            modified(tool="other", redaction={"masked": 1}),
        ],
        ids=["tool_name", "tool", "tool alone", "tool_name alone", "masked"],
    )
    async def test_another_tool_can_be_chosen_in_either_spelling(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage, respond: Any
    ) -> None:
        stage.on("tool:selecting", respond)

        await stage.run(orchestrator)

        assert (stage.tools["echo"].inputs, stage.tools["other"].inputs) == ([], [{"n": 1}])
        facts = {"tool": "other", "tool_name": "other", "source": "scheduler", "original_tool": "echo"}
        assert stage.payload("tool:selected").items() >= facts.items()
        assert stage.payload("tool:pre")["tool_name"] == "other"
        assert stage.messages[1]["tool_calls"] == [{"id": "c1", "tool": "echo", "arguments": {"n": 1}}]
        assert stage.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "other ran", "name": "echo"}

    @pytest.mark.parametrize("changes", [{"tool": "unmounted"}, {"tool": "open"}, {"tool": 7}, {"tool_name": None}])
    async def test_a_choice_that_cannot_run_is_ignored(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage, changes: Any
    ) -> None:
        stage.on("tool:selecting", modified(**changes))

        await stage.run(orchestrator)

        assert stage.results == ['{"n": 1}']
        assert stage.payload("tool:selected")["source"] == "llm"

    @pytest.mark.parametrize("choice", ["unmounted", "open"])
    async def test_and_warned_about(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage, choice: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.on("tool:selecting", modified(tool=choice))

        await stage.run(orchestrator)

        (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert repr(choice) in warning

    @pytest.mark.parametrize("key", ["arguments", "tool_input"])
    async def test_with_arguments_of_its_own_it_can(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage, key: str
    ) -> None:
        stage.on("tool:selecting", modified(tool="open", **{key: {"path": "a"}}))

        await stage.run(orchestrator)

        assert stage.tools["open"].inputs == [{"path": "a"}]
        assert stage.payload("tool:selected")["tool_input"] == {"path": "a"}

    async def test_masked_input_is_not_taken_over(self, orchestrator: EventDrivenOrchestrator, stage: Stage) -> None:
        stage.on("tool:selecting", modified(tool="other", tool_input={"n": "***"}, redaction={}))

        await stage.run(orchestrator)

        assert stage.tools["other"].inputs == [{"n": 1}]

    async def test_a_question_to_the_user_decides(self, orchestrator: EventDrivenOrchestrator, stage: Stage) -> None:
        stage.coordinator.approval_system.request_approval.return_value = "Deny"  # type: ignore[union-attr]
        stage.on("tool:selecting", HookResult(action="ask_user", approval_prompt="May it?"))

        await stage.run(orchestrator)

        assert stage.results == ["Error: User denied: May it?"]

    async def test_an_injection_is_ignored_there(self, orchestrator: EventDrivenOrchestrator, stage: Stage) -> None:
        stage.on("tool:selecting", HookResult(action="inject_context", context_injection="note"))

        await stage.run(orchestrator)

        assert "note" not in str(stage.messages)


class TestDecisionEvents:
    @pytest.fixture
    def orchestrator(self) -> EventDrivenOrchestrator:
        return EventDrivenOrchestrator({"decision_events": True, "decision_timeout": 0.05})

    @staticmethod
    def choosing(tool: Any, score: Any = 1.0) -> HookResult:
        return HookResult(data={"selected_tool": tool, "score": score, "rationale": "", "metadata": {}})

    async def test_the_highest_score_wins_and_the_first_of_equals(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage
    ) -> None:
        stage.on("decision:tool_resolution", self.choosing("open", 0.1))
        stage.on("decision:tool_resolution", self.choosing("other", 0.9))
        stage.on("decision:tool_resolution", self.choosing("echo", 0.9))

        await stage.run(orchestrator)

        assert stage.results == ["other ran"]
        assert tool_events(stage)[:2] == ["decision:tool_resolution", "tool:selecting"]
        assert stage.payload("tool:selecting")["tool_name"] == "other"
        assert stage.payload("tool:selected")["original_tool"] == "echo"

    async def test_the_question_says_what_there_is_to_choose_from(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage
    ) -> None:
        await stage.run(orchestrator)

        asked = stage.payload("decision:tool_resolution")
        assert asked["available_tools"] == ["echo", "other", "open"]
        assert asked["context"] == {"llm_selection": "echo", "tool_input": {"n": 1}}
        assert asked["session_id"] == "test-session"
        assert {"event_id", "timestamp", "metadata"} <= asked.keys()

    @pytest.mark.parametrize("tool", ["unmounted", "open", None, 7])
    async def test_an_answer_that_cannot_run_leaves_the_models_choice(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage, tool: Any
    ) -> None:
        stage.on("decision:tool_resolution", self.choosing(tool))

        await stage.run(orchestrator)

        assert stage.results == ['{"n": 1}']

    async def test_whoever_takes_too_long_is_not_waited_for(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage
    ) -> None:
        async def hang(data: Any) -> None:
            await asyncio.Event().wait()

        stage.on("decision:tool_resolution", hang)
        stage.on("decision:tool_resolution", self.choosing("other", "no number"))

        await stage.run(orchestrator)

        assert stage.results == ["other ran"]

    async def test_a_registry_that_cannot_collect_leaves_the_models_choice(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage
    ) -> None:
        text = await orchestrator.execute("Hello", stage.context, stage.providers, stage.tools, EventRecorder())

        assert (text, stage.results) == ("done", ['{"n": 1}'])

    async def test_one_that_fails_to_does_so_too(self, orchestrator: EventDrivenOrchestrator, stage: Stage) -> None:
        class Failing(EventRecorder):
            async def emit_and_collect(self, *_: Any, **__: Any) -> Any:
                raise OSError("elsewhere")

        await orchestrator.execute("Hello", stage.context, stage.providers, stage.tools, Failing())

        assert stage.results == ['{"n": 1}']

    async def test_nobody_is_asked_unless_it_is_switched_on(self, stage: Stage) -> None:
        stage.on("decision:tool_resolution", self.choosing("other"))

        await stage.run(EventDrivenOrchestrator({}))

        assert stage.results == ['{"n": 1}']
        assert "decision:tool_resolution" not in stage.event_names


class TestFailures:
    @pytest.mark.parametrize(("reason", "text"), [("read-only", "read-only"), (None, "Tool execution denied")])
    async def test_a_call_denied_before_it_runs_says_why(
        self, orchestrator: EventDrivenOrchestrator, stage: Stage, reason: str | None, text: str
    ) -> None:
        stage.on("tool:pre", HookResult(action="deny", reason=reason))

        await stage.run(orchestrator)

        assert stage.results == [f"Error: {text}"]
        assert tool_events(stage) == ["tool:selecting", "tool:selected", "tool:pre"]

    async def test_an_unknown_tool_is_announced_twice(self, orchestrator: EventDrivenOrchestrator) -> None:
        stage = Stage([calling(("c1", "missing")), answer()]).record()

        await stage.run(orchestrator)

        assert stage.results == ["Error: Tool missing not found"]
        assert tool_events(stage)[-2:] == ["tool:error", "error:tool"]
        error = {"error_type": "tool_not_found", "error_message": "Tool missing not found", "severity": "medium"}
        assert stage.payload("error:tool").items() >= error.items()

    async def test_a_tool_that_raises_is_announced_twice_and_reported(
        self, orchestrator: EventDrivenOrchestrator
    ) -> None:
        def fail(_: Any) -> None:
            raise OSError("no disk")

        stage = Stage([calling(("c1", "fail")), answer()], [FunctionTool("fail", fail)]).record()

        assert await stage.run(orchestrator) == "done"

        assert stage.results == [ToolResult(success=False, error={"message": "no disk"}).get_serialized_output()]
        assert tool_events(stage)[-3:] == ["tool:error", "error:tool", "tool:post"]
        error = {"error_type": "execution_failed", "error_message": "no disk", "tool": "fail", "severity": "high"}
        assert stage.payload("error:tool").items() >= error.items()
        assert stage.payload("tool:post")["result"]["success"] is False

    async def test_an_unexpected_error_is_one_message_and_the_next_call_runs(
        self, orchestrator: EventDrivenOrchestrator
    ) -> None:
        class Unlookable(dict[str, Any]):
            def get(self, key: Any, default: Any = None) -> Any:
                if key == "lost":
                    raise OSError("the tools are gone")
                return super().get(key, default)

        stage = Stage([calling(("c1", "lost"), ("c2", "echo", {"n": 2})), answer()])
        stage.tools = Unlookable(lost=echo("lost"), echo=echo())

        await stage.run(orchestrator)

        assert stage.results == ["Internal error executing tool: the tools are gone", '{"n": 2}']
        assert list(orphans(stage.messages)) == []
