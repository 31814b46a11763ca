"""loop-events: where its turn differs from the plain loop."""

import asyncio
import json
from typing import Any

import pytest
from amplifier_module_loop_events import EventDrivenOrchestrator, mount
from amplifier_module_loop_events import selection as loop_models
from turns import FunctionTool, Stage, answer, calling, echo, texts_of

from amplifier_core import HookResult, RateLimitError
from amplifier_core.testing import MockContextManager, MockCoordinator, MockProvider


@pytest.fixture
def orchestrator() -> EventDrivenOrchestrator:
    return EventDrivenOrchestrator({})


class TestProviders:
    async def test_the_first_mounted_is_asked_whatever_its_priority(
        self, orchestrator: EventDrivenOrchestrator
    ) -> None:
        stage, other = Stage(["from the first"]), MockProvider(["from the second"])
        other.priority = 1  # type: ignore[attr-defined]
        stage.providers["other"] = other

        assert await stage.run(orchestrator) == "from the first"

    async def test_without_one_the_answer_says_so(self, orchestrator: EventDrivenOrchestrator) -> None:
        stage = Stage().record()
        stage.providers = {}

        assert await stage.run(orchestrator) == "Error: No providers available"

        assert stage.payload("orchestrator:complete")["status"] == "error"
        assert stage.context.roles == ["user"]

    async def test_one_that_fails_ends_the_turn_with_its_error(self, orchestrator: EventDrivenOrchestrator) -> None:
        stage = Stage([calling(("c1", "echo")), RateLimitError("slow down", status_code=429)], [echo()]).record()

        assert await stage.run(orchestrator) == "Error getting response: slow down"

        error = {
            "error_type": "completion_failed",
            "error_message": "slow down",
            "severity": "high",
            "provider": "mock",
            "error": {"type": "RateLimitError", "msg": "slow down"},
            "retryable": True,
            "status_code": 429,
        }
        assert stage.payload("provider:error").items() >= error.items()
        assert "error:provider" not in stage.event_names
        assert stage.payload("execution:end")["status"] == "error"
        assert stage.payload("orchestrator:complete")["status"] == "error"

    async def test_another_one_may_help(self) -> None:
        stage = Stage([RateLimitError("busy")])
        stage.providers["other"] = MockProvider(["from the other"])

        assert await stage.run(EventDrivenOrchestrator({"provider_failover": True})) == "from the other"

    async def test_one_that_fails_to_sum_up_leaves_nothing(self) -> None:
        stage = Stage([calling(("c1", "echo")), RateLimitError("busy")], [echo()]).record()

        assert await stage.run(EventDrivenOrchestrator({"max_iterations": 1})) == ""

        assert stage.payload("provider:error")["error_type"] == "completion_failed"
        assert stage.payload("orchestrator:complete")["status"] == "incomplete"


class TestTurn:
    async def test_orchestrator_complete_is_the_last_event_and_rounds_are_counted_from_one(
        self, orchestrator: EventDrivenOrchestrator
    ) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()]).record()

        await stage.run(orchestrator)

        assert stage.event_names[-3:] == ["prompt:complete", "execution:end", "orchestrator:complete"]
        assert stage.payload("orchestrator:complete")["orchestrator"] == "loop-events"
        assert [data["iteration"] for data in stage.payloads("provider:request")] == [1, 2]
        assert not {"session:start", "session:end"} & {*stage.event_names}

    async def test_what_hooks_add_at_the_prompt_is_in_every_request(
        self, orchestrator: EventDrivenOrchestrator
    ) -> None:
        stage = Stage([calling(("c1", "echo")), calling(("c2", "echo")), answer()], [echo()])
        stage.on("prompt:submit", HookResult(action="inject_context", context_injection="note", ephemeral=True))

        await stage.run(orchestrator)

        assert [texts_of(request).count("note") for request in stage.provider.requests] == [1, 1, 1]
        assert "note" not in str(stage.messages)

    async def test_the_context_compacts_itself(self, orchestrator: EventDrivenOrchestrator) -> None:
        context = MockContextManager()

        async def forbidden(*_: Any) -> bool:
            raise AssertionError("the loop asks for compaction")

        context.should_compact = context.compact = forbidden  # type: ignore[attr-defined]

        await Stage([answer()], context=context).run(orchestrator)

        context.get_messages_for_request.assert_awaited()

    async def test_a_context_without_a_view_gives_its_history(self, orchestrator: EventDrivenOrchestrator) -> None:
        class Old:
            async def add_message(self, message: Any) -> None: ...

            async def get_messages(self) -> list[dict[str, Any]]:
                return [{"role": "user", "content": "from the history"}]

        stage = Stage([answer()], context=Old())

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[0]) == ["from the history"]


class TestTools:
    async def test_they_run_one_after_another(self, orchestrator: EventDrivenOrchestrator) -> None:
        order: list[str] = []

        async def run(input: dict[str, Any]) -> None:
            order.append(f"{input['n']} starts")
            await asyncio.sleep(0)
            order.append(f"{input['n']} ends")

        calls = calling(("c1", "run", {"n": 1}), ("c2", "run", {"n": 2}))

        await Stage([calls, answer()], [FunctionTool("run", run)]).run(orchestrator)

        assert order == ["1 starts", "1 ends", "2 starts", "2 ends"]

    @pytest.mark.parametrize("state", ["graceful", "immediate"])
    async def test_the_token_is_looked_at_after_each(self, orchestrator: EventDrivenOrchestrator, state: str) -> None:
        stage = Stage([calling(("c1", "stop"), ("c2", "echo"), ("c3", "echo"))], [echo()])

        def stop(_: Any) -> str:
            getattr(stage.coordinator.cancellation, f"request_{state}")()  # type: ignore[union-attr]
            return "stopping"

        stage.tools["stop"] = FunctionTool("stop", stop)

        await stage.run(orchestrator)

        assert stage.tools["echo"].inputs == []
        assert stage.results[0] == "stopping"
        assert [json.loads(result)["cancelled"] for result in stage.results[1:]] == [True, True]
        assert stage.messages[-1]["role"] == "assistant"

    @pytest.mark.parametrize(
        "call",
        [
            {"name": "echo"},
            {"tool": "echo"},
            {"name": "echo", "arguments": {}},
            {"tool": "echo", "arguments": {"n": 1}},
            {"id": "c1", "tool": "echo", "arguments": "{}"},
        ],
    )
    async def test_calls_given_as_dicts_run(self, orchestrator: EventDrivenOrchestrator, call: dict[str, Any]) -> None:
        response = answer("")
        response.tool_calls = [call]  # type: ignore[list-item] # as some providers leave them
        stage = Stage([response, answer()], [echo()])

        assert await stage.run(orchestrator) == "done"

        assert len(stage.tools["echo"].inputs) == 1


class TestConfiguration:
    @pytest.mark.parametrize(
        ("key", "value"), [("decision_timeout", 0), ("decision_timeout", "soon"), ("decision_events", "perhaps")]
    )
    def test_a_bad_value_is_refused(self, key: str, value: Any) -> None:
        with pytest.raises(ValueError, match=rf"loop-events: config key '{key}' is .*, allowed: "):
            EventDrivenOrchestrator({key: value})

    def test_parallelism_is_no_key_of_it(self, caplog: pytest.LogCaptureFixture) -> None:
        EventDrivenOrchestrator({"parallel_tools": True, "max_parallel_tools": 2})

        (warning,) = [record.message for record in caplog.records]
        assert warning.endswith("max_parallel_tools, parallel_tools")

    async def test_its_own_events_are_contributed(self) -> None:
        coordinator = MockCoordinator()
        await mount(coordinator, None)

        (contributed,) = await coordinator.collect_contributions("observability.events")

        assert contributed == [
            "execution:start",
            "execution:end",
            "tool:selecting",
            "tool:selected",
            "error:tool",
            "decision:tool_resolution",
            "decision:agent_resolution",
            "decision:context_resolution",
            "orchestrator:steering_injected",
        ]


def test_the_models_have_the_fields_that_schedulers_use() -> None:
    fields = {
        name: [field for field in getattr(loop_models, name).__dataclass_fields__]
        for name in ("ToolResolutionResponse", "AgentResolutionResponse", "ContextResolutionResponse", "ErrorEvent")
    }
    common = ["event_id", "timestamp", "session_id", "metadata"]

    assert fields["ToolResolutionResponse"] == ["selected_tool", "score", "rationale", "metadata"]
    assert fields["AgentResolutionResponse"] == ["selected_agent", "score", "rationale", "metadata"]
    assert fields["ContextResolutionResponse"] == ["should_compact", "compaction_strategy", "rationale", "metadata"]
    assert fields["ErrorEvent"][:3] == ["error_type", "error_code", "error_message"]
    request = loop_models.ToolResolutionRequest("e1", 1.0, "s1", available_tools=["echo"], context={"a": 1})
    assert [field for field in request.__dataclass_fields__] == [*common, "available_tools", "context"]
    agent = loop_models.AgentResolutionRequest("e1", 1.0, "s1", available_agents=["scout"], task="look", context={})
    assert (agent.available_agents, agent.task) == (["scout"], "look")
    context = loop_models.ContextResolutionRequest("e1", 1.0, "s1", context_size=1, max_size=2, messages=[])
    assert (context.context_size, context.max_size, context.messages, context.metadata) == (1, 2, [], {})
