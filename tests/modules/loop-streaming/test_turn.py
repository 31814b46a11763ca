"""loop-streaming: steering, the distance between calls, its tools, its limits and its configuration."""

import asyncio
import logging
import time
from typing import Any

import pytest
from amplifier_module_loop_streaming import StreamingOrchestrator, mount
from amplifier_module_loop_streaming.steering import SteeringQueueFull
from turns import FunctionTool, Stage, answer, calling, echo, texts_of

from amplifier_core import ChatResponse, RateLimitError, ToolResult
from amplifier_core.testing import MockCoordinator


@pytest.fixture
def orchestrator() -> StreamingOrchestrator:
    return StreamingOrchestrator({})


class TestOrder:
    async def test_orchestrator_complete_is_the_last_event_and_rounds_are_counted_from_one(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()]).record()

        await stage.run(orchestrator)

        assert stage.event_names[-3:] == ["prompt:complete", "execution:end", "orchestrator:complete"]
        assert [data["iteration"] for data in stage.payloads("provider:request")] == [1, 2]
        assert [data["iteration"] for data in stage.payloads("provider:response")] == [1, 2]

    async def test_without_a_provider_the_answer_says_so(self, orchestrator: StreamingOrchestrator) -> None:
        stage = Stage().record()
        stage.providers = {}

        assert await stage.run(orchestrator) == "Error: No providers available"

        assert stage.payload("execution:end").items() >= {"response": "Error: No providers available"}.items()
        assert stage.payload("orchestrator:complete")["status"] == "error"

    async def test_an_answer_in_the_only_round_needs_no_summary(self) -> None:
        stage = Stage([answer()])

        assert await stage.run(StreamingOrchestrator({"max_iterations": 1})) == "done"

        assert stage.provider.call_count == 1

    async def test_a_summary_is_text_and_comes_in_the_last_round(self) -> None:
        stage = Stage([calling(("c1", "echo")), answer("a summary")], [echo()]).record("provider:request")

        assert await stage.run(StreamingOrchestrator({"max_iterations": 1})) == "a summary"

        last = stage.payloads("provider:request")[-1]
        assert (last["iteration"], last["max_reached"]) == (1, True)

    async def test_a_provider_that_fails_raises(self, orchestrator: StreamingOrchestrator) -> None:
        with pytest.raises(RateLimitError):
            await Stage([RateLimitError("busy")]).run(orchestrator)


class TestTools:
    async def test_a_tool_that_raises_is_reported_like_one_that_failed(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        def fail(_: Any) -> None:
            raise OSError("no disk")

        stage = Stage([calling(("c1", "fail")), answer()], [FunctionTool("fail", fail)]).record()

        assert await stage.run(orchestrator) == "done"

        names = [name for name in stage.event_names if name.startswith("tool:")]
        assert names == ["tool:pre", "tool:error", "tool:post"]
        assert stage.payload("tool:error")["error"] == {"type": "OSError", "msg": "no disk"}
        result = stage.payload("tool:post")["result"]
        assert (result["success"], result["error"]["message"]) == (False, "no disk")
        assert stage.results == [ToolResult(success=False, error={"message": "no disk"}).get_serialized_output()]

    async def test_unknown_denied_and_internal_failures_have_their_texts(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        class Unlookable(dict[str, Any]):
            def get(self, key: Any, default: Any = None) -> Any:
                if key == "lost":
                    raise OSError("the tools are gone")
                return super().get(key, default)

        stage = Stage([calling(("c1", "missing"), ("c2", "lost")), answer()])
        stage.tools = Unlookable(lost=echo("lost"))

        await stage.run(orchestrator)

        assert stage.results == [
            "Error: Tool 'missing' not found",
            "Internal error executing tool: the tools are gone",
        ]

    async def test_results_are_stored_in_call_order(self, orchestrator: StreamingOrchestrator) -> None:
        second_done = asyncio.Event()

        async def first(_: Any) -> str:
            await asyncio.wait_for(second_done.wait(), timeout=30)
            return "first"

        def second(_: Any) -> str:
            second_done.set()
            return "second"

        tools = [FunctionTool("first", first), FunctionTool("second", second)]
        stage = Stage([calling(("c1", "first"), ("c2", "second")), answer()], tools)

        await stage.run(orchestrator)

        assert stage.results == ["first", "second"]


class NativeTool(FunctionTool):
    def __init__(self, native: Any) -> None:
        super().__init__("browse", lambda input: "page")
        self._native = native

    @property
    def native_tool_spec(self) -> Any:
        if isinstance(self._native, Exception):
            raise self._native
        return self._native


class TestNativeTools:
    async def spec(self, tool: Any) -> Any:
        stage = Stage([answer()], [tool])
        await stage.run(StreamingOrchestrator({}))
        (spec,) = stage.provider.requests[0].tools
        return spec

    async def test_a_tool_the_vendor_implements_is_offered_in_the_vendors_terms(self) -> None:
        spec = await self.spec(NativeTool({"type": "web_20250101", "name": "web", "max_uses": 3}))

        assert (spec.name, spec.type, spec.max_uses) == ("web", "web_20250101", 3)
        assert (spec.description, spec.parameters) == ("A tool for tests.", {"type": "object", "properties": {}})

    async def test_its_own_description_and_parameters_win(self) -> None:
        spec = await self.spec(NativeTool({"type": "web", "description": "Browse.", "parameters": {"a": 1}}))

        assert (spec.name, spec.description, spec.parameters) == ("browse", "Browse.", {"a": 1})

    @pytest.mark.parametrize("native", [None, {}, {"type": ""}, "web", ["web"]])
    async def test_without_a_type_the_function_form_is_sent(self, native: Any) -> None:
        assert "type" not in (await self.spec(NativeTool(native))).model_dump()

    @pytest.mark.parametrize("native", [OSError("offline"), {"type": "web", "name": 7}], ids=["raises", "misshapen"])
    async def test_one_that_fails_is_sent_as_a_function_with_a_warning(
        self, native: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert (await self.spec(NativeTool(native))).name == "browse"

        assert any("native form of tool 'browse'" in record.message for record in caplog.records)

    async def test_an_attribute_of_the_instance_alone_does_not_count(self) -> None:
        tool = echo()
        tool.native_tool_spec = {"type": "web"}  # type: ignore[attr-defined]

        assert "type" not in (await self.spec(tool)).model_dump()


class TestSteering:
    async def test_messages_queued_in_a_tool_round_end_the_next_request_and_count_down(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        def steer(_: Any) -> str:
            for text in ("one", "two", "three"):
                orchestrator.steer(text)
            return "steered"

        stage = Stage([calling(("c1", "steer")), answer()], [FunctionTool("steer", steer)])
        stage.record("orchestrator:steering_injected")

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[1])[-3:] == ["one", "two", "three"]
        assert [message["role"] for message in stage.messages[3:6]] == ["user"] * 3
        told = stage.payloads("orchestrator:steering_injected")
        assert [(data["content"], data["queued_remaining"]) for data in told] == [("one", 2), ("two", 1), ("three", 0)]
        facts = {"orchestrator": "loop-streaming", "iteration": 2, "metadata": None}
        assert all(data.items() >= facts.items() for data in told)

    async def test_a_message_queued_while_the_answer_is_produced_is_answered_in_the_same_turn(
        self, orchestrator: StreamingOrchestrator
    ) -> None:
        stage = Stage([answer("first. "), answer("second.")])
        stage.on("provider:response", lambda data: orchestrator.steer("and?") if data["iteration"] == 1 else None)

        assert await stage.run(orchestrator) == "first. second."

        assert stage.provider.call_count == 2
        assert [message["role"] for message in stage.messages] == ["user", "assistant", "user", "assistant"]
        assert texts_of(stage.provider.requests[1])[-1] == "and?"

    async def test_not_when_the_rounds_are_used_up(self) -> None:
        orchestrator = StreamingOrchestrator({"max_iterations": 1})
        stage = Stage([answer("first."), answer("second.")])
        stage.on("provider:response", lambda data: orchestrator.steer("and?"))

        assert await stage.run(orchestrator) == "first."

        assert stage.provider.call_count == 1

    async def test_what_waits_when_a_summary_is_asked_for_is_taken_in(self) -> None:
        orchestrator = StreamingOrchestrator({"max_iterations": 1})
        tool = FunctionTool("steer", lambda input: orchestrator.steer("be brief"))
        stage = Stage([calling(("c1", "steer")), answer("a summary")], [tool])

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[1])[-2] == "be brief"

    async def test_a_message_from_before_the_turn_never_reaches_the_provider(
        self, orchestrator: StreamingOrchestrator, caplog: pytest.LogCaptureFixture
    ) -> None:
        orchestrator.steer("too early")
        stage = Stage([answer()])

        await stage.run(orchestrator)

        assert texts_of(stage.provider.requests[0]) == ["Hello"]
        (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert warning.startswith("1 steering message")

    @pytest.mark.parametrize("by_task", [True, False], ids=["task", "token"])
    async def test_a_cancelled_turn_drops_what_waits(
        self, orchestrator: StreamingOrchestrator, by_task: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage = Stage([calling(("c1", "stop"))])

        def stop(_: Any) -> str:
            orchestrator.steer("too late")
            if by_task:
                raise asyncio.CancelledError
            stage.coordinator.cancellation.request_graceful()  # type: ignore[union-attr]
            return "stopping"

        stage.tools["stop"] = FunctionTool("stop", stop)
        await asyncio.wait([asyncio.create_task(stage.run(orchestrator))])

        await Stage([answer()]).run(orchestrator)

        assert [record for record in caplog.records if record.levelno == logging.WARNING] == []

    async def test_it_is_offered_as_a_capability_and_works_from_other_threads(self) -> None:
        coordinator = MockCoordinator()
        await mount(coordinator, {"max_queued_steers": 1000})
        steer = coordinator.get_capability("session.steer")

        async def from_threads() -> str:
            await asyncio.gather(*(asyncio.to_thread(steer, f"message {n}") for n in range(200)))
            return "steered"

        stage = Stage([calling(("c1", "steer")), answer()], [FunctionTool("steer", lambda input: from_threads())])

        await stage.run(coordinator.get("orchestrator"))

        assert sorted(texts_of(stage.provider.requests[1])[3:]) == sorted(f"message {n}" for n in range(200))

    @pytest.mark.parametrize("message", ["", "  \n", None, 7])
    def test_there_has_to_be_a_message(self, orchestrator: StreamingOrchestrator, message: Any) -> None:
        with pytest.raises(ValueError, match="non-empty"):
            orchestrator.steer(message)

    def test_the_queue_is_bounded(self) -> None:
        orchestrator = StreamingOrchestrator({"max_queued_steers": 2})
        orchestrator.steer("one")
        orchestrator.steer("two")

        with pytest.raises(SteeringQueueFull) as refusal:
            orchestrator.steer("three")

        assert isinstance(refusal.value, RuntimeError)


class TestRateLimit:
    async def test_the_second_call_waits_and_the_first_does_not(self) -> None:
        starts: list[float] = []
        stage = Stage([calling(("c1", "echo")), answer()], [echo()]).record("orchestrator:rate_limit_delay")
        complete = stage.provider.complete

        async def timed(request: Any, **options: Any) -> Any:
            starts.append(time.monotonic())
            return await complete(request, **options)

        stage.provider.complete = timed

        await stage.run(StreamingOrchestrator({"min_delay_between_calls_ms": 100}))

        assert starts[1] - starts[0] >= 0.09
        payload = stage.payload("orchestrator:rate_limit_delay")
        assert (payload["configured_ms"], payload["iteration"]) == (100, 2)
        assert payload["delay_ms"] == pytest.approx(100 - payload["elapsed_ms"])

    async def test_a_call_that_comes_late_enough_does_not_wait(self) -> None:
        async def wait(_: Any) -> None:
            await asyncio.sleep(0.02)

        stage = Stage([calling(("c1", "wait")), answer()], [FunctionTool("wait", wait)])
        stage.record("orchestrator:rate_limit_delay")

        await stage.run(StreamingOrchestrator({"min_delay_between_calls_ms": 5}))

        assert stage.events == []

    async def test_an_immediate_cancellation_ends_the_wait_without_another_call(self) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()]).record("execution:end", "cancel:requested")
        token = stage.coordinator.cancellation  # type: ignore[union-attr]
        stage.on("orchestrator:rate_limit_delay", lambda data: token.request_immediate() and None)

        assert await stage.run(StreamingOrchestrator({"min_delay_between_calls_ms": 3_600_000})) == ""

        assert stage.provider.call_count == 1
        assert stage.payload("execution:end")["status"] == "cancelled"
        assert stage.messages[-1]["role"] == "assistant"


class TestConfiguration:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("stream_delay", -1),
            ("stream_delay", "slow"),
            ("min_delay_between_calls_ms", -0.5),
            ("max_queued_steers", 0),
            ("max_queued_steers", "many"),
            ("parallel_tools", "perhaps"),
            ("max_parallel_tools", -1),
        ],
    )
    def test_a_bad_value_is_refused(self, key: str, value: Any) -> None:
        with pytest.raises(ValueError, match=rf"loop-streaming: config key '{key}' is .*, allowed: "):
            StreamingOrchestrator({key: value})

    def test_its_delays_can_be_read_and_set(self) -> None:
        configured = StreamingOrchestrator({"stream_delay": 0.25, "min_delay_between_calls_ms": "100"})

        assert (configured.stream_delay, configured.min_delay_between_calls_ms) == (0.25, 100)
        assert (StreamingOrchestrator().stream_delay, StreamingOrchestrator().min_delay_between_calls_ms) == (0, 0)

    async def test_a_delay_that_is_set_holds_for_the_next_turn(self) -> None:
        orchestrator = StreamingOrchestrator({"min_delay_between_calls_ms": 3_600_000})
        orchestrator.min_delay_between_calls_ms = 5
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])

        assert await stage.run(orchestrator) == "done"

    async def test_goals_are_accepted_with_one_warning_and_one_turn_runs(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        coordinator = MockCoordinator()
        coordinator.session_state["goal"] = {"text": "world peace"}
        await mount(
            coordinator, {"goal_stall_threshold": 5, "goal_model_role": "judge", "goal_summary_max_reasons": None}
        )
        stage = Stage([answer(), answer()])

        assert await stage.run(coordinator.get("orchestrator")) == "done"

        assert stage.provider.call_count == 1
        (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert warning.endswith("goal_stall_threshold, goal_model_role")

    async def test_its_own_events_are_contributed(self) -> None:
        coordinator = MockCoordinator()
        await mount(coordinator, None)

        (contributed,) = await coordinator.collect_contributions("observability.events")

        assert contributed == [
            "execution:start",
            "execution:end",
            "orchestrator:steering_injected",
            "orchestrator:rate_limit_delay",
        ]


async def test_empty_responses_in_a_row_end_the_turn(orchestrator: StreamingOrchestrator) -> None:
    stage = Stage([ChatResponse(content=[])] * 9)

    assert await stage.run(orchestrator) == ""

    assert stage.provider.call_count == 3
