"""A cancelled turn ends in order with every orchestrator, wherever it is cancelled, and leaves a sound transcript."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from module_folders import folders_of_type
from turns import (
    FunctionTool,
    ListContext,
    Stage,
    answer,
    calling,
    echo,
    mounted,
    orphans,
    unpaired,
)

from amplifier_core import AmplifierSession, HookResult
from amplifier_core.testing import MockProvider

CONTEXT = Path(__file__).parents[2] / "modules/context-simple"
CLOSING_WORD = "cancelled"


@pytest.fixture(params=folders_of_type("orchestrator"), ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
async def orchestrator(folder: Path) -> Any:
    return await mounted(folder)


def token_of(stage: Stage) -> Any:
    assert stage.coordinator is not None
    return stage.coordinator.cancellation


def cancelled_result(name: str) -> dict[str, Any]:
    return {"error": "Tool execution was cancelled by user", "cancelled": True, "tool": name}


def ends_in_order(stage: Stage) -> bool:
    return not [*orphans(stage.messages), *unpaired(stage.events)]


class Hanging(FunctionTool):
    """A tool that runs until it is cancelled, and takes its time then."""

    def __init__(self, name: str = "hang") -> None:
        super().__init__(name, lambda input: self._hang())
        self.started = asyncio.Event()
        self.has_ended = False

    async def _hang(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.has_ended = True


async def cancel_when(started: asyncio.Event, stage: Stage, orchestrator: Any) -> None:
    """Run a turn and cancel its task once something has started."""
    task = asyncio.create_task(stage.run(orchestrator))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TestAtTheTopOfARound:
    @pytest.mark.parametrize("state", ["graceful", "immediate"])
    async def test_nothing_is_asked_any_more(self, orchestrator: Any, folder: Path, state: str) -> None:
        stage = Stage([answer()]).record()
        called = []
        token_of(stage).on_cancel(lambda: called.append("callback"))
        stage.on("execution:start", lambda data: getattr(token_of(stage), f"request_{state}")() and None)

        assert await stage.run(orchestrator) == ""

        assert stage.provider.call_count == 0
        facts = {"orchestrator": folder.name, "state": state, "turn_count": 0}
        assert stage.payload("cancel:requested").items() >= facts.items()
        assert called == ["callback"]
        assert stage.payload("execution:end")["status"] == "cancelled"
        assert stage.payload("orchestrator:complete")["status"] == "cancelled"
        assert "prompt:complete" not in stage.event_names
        assert ends_in_order(stage)

    async def test_a_transcript_that_ends_on_results_is_closed(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])
        stage.on("tool:post", lambda data: token_of(stage).request_graceful() and None)

        await stage.run(orchestrator)

        assert stage.context.roles == ["user", "assistant", "tool", "assistant"]
        assert CLOSING_WORD in stage.messages[-1]["content"]

    async def test_no_summary_is_asked_for(self, folder: Path) -> None:
        stage = Stage([answer()])
        stage.on("execution:start", lambda data: token_of(stage).request_graceful() and None)

        await stage.run(await mounted(folder, {"max_iterations": 0}))

        assert stage.provider.call_count == 0


class TestWhenTheProviderReturns:
    async def test_an_immediate_cancellation_drops_the_response_but_not_its_usage(self, orchestrator: Any) -> None:
        stage = Stage([answer()]).record()
        stage.on("provider:request", lambda data: token_of(stage).request_immediate() and None)

        assert await stage.run(orchestrator) == ""

        assert stage.context.roles == ["user"]
        assert stage.payload("provider:response")["usage"]["total_tokens"] == 3
        assert stage.payload("cancel:requested")["state"] == "immediate"
        assert ends_in_order(stage)

    async def test_calls_that_came_with_it_are_not_run(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo"))], [echo()]).record()

        async def complete(request: Any, **_: Any) -> Any:
            token_of(stage).request_immediate()
            return calling(("c1", "echo"))

        stage.provider.complete = complete

        await stage.run(orchestrator)

        assert stage.tools["echo"].inputs == []
        assert stage.context.roles == ["user"]
        assert len(stage.payloads("provider:response")) == 1

    async def test_a_graceful_cancellation_keeps_the_answer(self, orchestrator: Any) -> None:
        stage = Stage([answer()]).record()
        stage.on("provider:request", lambda data: token_of(stage).request_graceful() and None)

        assert await stage.run(orchestrator) == "done"

        assert stage.payload("orchestrator:complete")["status"] == "success"


class TestDuringTools:
    async def test_a_cancelled_task_leaves_a_result_for_every_call(self, orchestrator: Any) -> None:
        hanging = Hanging()
        stage = Stage([calling(("c1", "echo", {"n": 1}), ("c2", "hang"), ("c3", "hang"))], [echo(), hanging]).record()

        await cancel_when(hanging.started, stage, orchestrator)

        first, second, third = stage.results
        assert first == '{"n": 1}'
        assert json.loads(second) == cancelled_result("hang")
        assert json.loads(third) == cancelled_result("hang")
        assert hanging.has_ended
        assert stage.messages[-1]["role"] == "assistant"
        assert CLOSING_WORD in stage.messages[-1]["content"]
        assert stage.payload("cancel:requested")["state"] == "immediate"
        assert stage.payload("execution:end")["status"] == "cancelled"
        assert stage.payload("orchestrator:complete")["status"] == "cancelled"
        assert "cancel:completed" not in stage.event_names
        assert ends_in_order(stage)

    async def test_a_tool_that_cancels_itself_ends_the_turn_like_that(self, orchestrator: Any) -> None:
        def cancel_itself(_: Any) -> None:
            raise asyncio.CancelledError

        hanging = Hanging()
        tools = [echo(), hanging, FunctionTool("give_up", cancel_itself)]
        stage = Stage([calling(("c1", "echo", {"n": 1}), ("c2", "give_up"), ("c3", "hang"))], tools).record()

        with pytest.raises(asyncio.CancelledError):
            await stage.run(orchestrator)

        assert stage.results[0] == '{"n": 1}'
        assert [json.loads(result) for result in stage.results[1:]] == [
            cancelled_result("give_up"),
            cancelled_result("hang"),
        ]
        assert hanging.has_ended is hanging.started.is_set()
        assert ends_in_order(stage)

    async def test_a_tool_that_had_finished_keeps_its_result_though_its_hooks_had_not(self, orchestrator: Any) -> None:
        started = asyncio.Event()

        async def hang(data: dict[str, Any]) -> None:
            started.set()
            await asyncio.Event().wait()

        stage = Stage([calling(("c1", "echo", {"n": 1}))], [echo()]).on("tool:post", hang)

        await cancel_when(started, stage, orchestrator)

        assert stage.results == ['{"n": 1}']

    async def test_a_tool_that_swallows_the_cancellation_does_not_keep_the_turn_alive(self, orchestrator: Any) -> None:
        started = asyncio.Event()

        async def swallow() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "finished all the same"
            return ""

        stage = Stage([calling(("c1", "stubborn")), answer()], [FunctionTool("stubborn", lambda input: swallow())])

        await cancel_when(started, stage.record(), orchestrator)

        assert stage.results == ["finished all the same"]
        assert stage.provider.call_count == 1
        assert ends_in_order(stage)

    async def test_a_provider_that_swallows_it_does_not_either(self, orchestrator: Any) -> None:
        started = asyncio.Event()

        async def complete(request: Any, **_: Any) -> Any:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return calling(("c1", "echo"))

        stage = Stage([], [echo()]).record()
        stage.provider.complete = complete

        await cancel_when(started, stage, orchestrator)

        assert stage.tools["echo"].inputs == []
        assert ends_in_order(stage)

    @pytest.mark.parametrize("state", ["graceful", "immediate"])
    async def test_a_token_lets_the_tools_finish_and_ends_the_turn_after_them(
        self, orchestrator: Any, state: str
    ) -> None:
        stage = Stage([calling(("c1", "stop")), answer()]).record()
        stop = FunctionTool("stop", lambda input: getattr(token_of(stage), f"request_{state}")() and "stopping")
        stage.tools["stop"] = stop

        assert await stage.run(orchestrator) == ""

        assert stage.results == ["stopping"]
        assert CLOSING_WORD in stage.messages[-1]["content"]
        assert stage.payload("cancel:requested")["state"] == state
        assert stage.payload("execution:end")["status"] == "cancelled"
        assert stage.provider.call_count == 1
        assert ends_in_order(stage)


class TestSecondCancellation:
    async def test_results_and_last_events_are_finished_first(self, orchestrator: Any) -> None:
        hanging = Hanging()
        stage = Stage(
            [calling(("c1", "echo", {"n": 1}), ("c2", "hang"))], [echo(), hanging], context=ListContext(pause=True)
        ).record()
        for event in ("cancel:requested", "execution:end", "orchestrator:complete"):
            stage.on(event, lambda data: asyncio.sleep(0))
        task = asyncio.create_task(stage.run(orchestrator))
        await hanging.started.wait()

        while not task.done():
            task.cancel()
            await asyncio.sleep(0)

        assert task.cancelled()
        assert len(stage.results) == 2
        assert CLOSING_WORD in stage.messages[-1]["content"]
        assert ends_in_order(stage)


class TestEveryAwait:
    """A turn in which everything waits, cancelled after each possible number of steps of the event loop."""

    @staticmethod
    def stage() -> Stage:
        async def wait(_: Any) -> None:
            await asyncio.sleep(0)

        tools = [FunctionTool("one", wait), FunctionTool("two", wait)]
        responses = [calling(("c1", "one"), ("c2", "two"), ("c3", "missing")), calling(("c4", "two")), answer()]
        stage = Stage(responses, tools, context=ListContext(pause=True)).record()
        complete = stage.provider.complete

        async def pausing(request: Any, **options: Any) -> Any:
            await asyncio.sleep(0)
            return await complete(request, **options)

        stage.provider.complete = pausing
        for event in ("prompt:submit", "execution:start", "provider:request", "provider:response", "execution:end"):
            stage.on(event, wait)
        for event in ("tool:pre", "tool:post", "tool:error", "content_block:start", "orchestrator:complete"):
            stage.on(event, wait)
        note = HookResult(action="inject_context", context_injection="note")
        return stage.on("tool:post", lambda data: note)

    async def test_a_cancelled_task_leaves_no_orphan_and_no_unpaired_event(self, orchestrator: Any) -> None:
        for steps in range(1000):
            stage = self.stage()
            task = asyncio.create_task(stage.run(orchestrator))
            for _ in range(steps):
                await asyncio.sleep(0)
            was_done = task.done()
            task.cancel()
            await asyncio.wait([task])

            assert list(orphans(stage.messages)) == [], steps
            assert not stage.events or list(unpaired(stage.events)) == [], steps
            assert stage.messages == [] or stage.messages[-1]["role"] != "tool", steps
            assert task.cancelled() or was_done, steps
            if was_done:
                break
        assert was_done
        assert steps > 50

    @pytest.mark.parametrize("state", ["graceful", "immediate"])
    async def test_neither_does_a_token(self, orchestrator: Any, state: str) -> None:
        for steps in range(1000):
            stage = self.stage()
            task = asyncio.create_task(stage.run(orchestrator))
            for _ in range(steps):
                await asyncio.sleep(0)
            was_done = task.done()
            getattr(token_of(stage), f"request_{state}")()
            await task

            assert list(orphans(stage.messages)) == [], steps
            assert list(unpaired(stage.events)) == [], steps
            assert stage.messages[-1]["role"] != "tool", steps
            if was_done:
                break
        assert was_done
        assert steps > 50


class TestTheToken:
    async def test_running_tools_are_registered_under_call_id_and_display_name(self, orchestrator: Any) -> None:
        stage, seen = Stage(), list[tuple[Any, Any]]()

        def look(_: Any) -> None:
            seen.append((sorted(token_of(stage).running_tools), token_of(stage).running_tool_names))

        calls = [("c1", "look"), ("c2", "delegate", {"agent": "scout"}), ("c3", "delegate", {"agent": ""})]
        calls += [("c4", "ask", {"whom": "sage"})]
        tools = [FunctionTool(name, look) for name in ("look", "delegate", "ask")]
        vars(tools[-1])["display_argument"] = "whom"
        stage = Stage([*(calling(call) for call in calls), answer()], tools)

        await stage.run(orchestrator)

        assert seen == [(["c1"], ["look"]), (["c2"], ["scout"]), (["c3"], ["delegate"]), (["c4"], ["sage"])]
        assert token_of(stage).running_tools == set()

    async def test_they_are_unregistered_whatever_happens(self, orchestrator: Any) -> None:
        hanging = Hanging()
        stage = Stage([calling(("c1", "missing"), ("c2", "hang"))], [hanging])

        await cancel_when(hanging.started, stage, orchestrator)

        assert token_of(stage).running_tools == set()

    async def test_a_callback_that_fails_does_not_change_the_outcome(self, orchestrator: Any) -> None:
        async def broken() -> None:
            raise OSError("no bell")

        stage = Stage([answer()]).record()
        token = SimpleNamespace(is_cancelled=True, trigger_callbacks=broken)
        stage.coordinator.cancellation = token  # type: ignore[union-attr,assignment]

        assert await stage.run(orchestrator) == ""

        assert stage.payload("orchestrator:complete")["status"] == "cancelled"

    @pytest.mark.parametrize("token", [None, SimpleNamespace(), SimpleNamespace(is_cancelled=False)])
    async def test_what_a_token_lacks_is_not_missed(self, orchestrator: Any, token: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])
        stage.coordinator.cancellation = token  # type: ignore[union-attr]

        assert await stage.run(orchestrator) == "done"


class TestCancelCompleted:
    async def test_alone_a_loop_announces_the_end_of_a_cancellation_itself(
        self, orchestrator: Any, folder: Path
    ) -> None:
        hanging = Hanging()
        stage = Stage([calling(("c1", "hang"))], [hanging], with_coordinator=False).record()

        await cancel_when(hanging.started, stage, orchestrator)

        facts = {"orchestrator": folder.name, "was_immediate": True, "turn_count": 1}
        assert stage.payload("cancel:completed").items() >= facts.items()

    @pytest.mark.parametrize("by_task", [True, False], ids=["task", "token"])
    async def test_in_a_session_it_comes_once(self, folder: Path, by_task: bool) -> None:
        plan = {
            "session": {
                "orchestrator": {"module": folder.name, "source": str(folder)},
                "context": {"module": CONTEXT.name, "source": str(CONTEXT)},
            }
        }
        seen, hanging = list[str](), Hanging()

        async def keep(event: str, data: Any) -> HookResult:
            seen.append(event)
            return HookResult()

        async with AmplifierSession(plan) as session:
            coordinator = session.coordinator
            stop = FunctionTool("stop", lambda input: coordinator.cancellation.request_graceful() and "stopping")
            provider = MockProvider([calling(("c1", "hang" if by_task else "stop"))])
            await coordinator.mount("providers", provider, name="mock")
            await coordinator.mount("tools", hanging)
            await coordinator.mount("tools", stop)
            coordinator.hooks.register("cancel:requested", keep)
            coordinator.hooks.register("cancel:completed", keep)
            task = asyncio.create_task(session.execute("Hello"))
            if by_task:
                await hanging.started.wait()
                coordinator.cancellation.request_immediate()
                task.cancel()
            await asyncio.wait([task])

        assert seen == ["cancel:requested", "cancel:completed"]
        assert session.status.status == "cancelled"


class TestReaders:
    async def test_a_reader_that_leaves_cancels_the_turn(self, orchestrator: Any) -> None:
        stage = Stage([answer("many words to read")]).record()

        stream = orchestrator.execute_stream("Hello", **stage.inputs())
        await anext(stream)
        await stream.aclose()

        assert stage.payload("execution:end")["status"] == "cancelled"
        assert ends_in_order(stage)

    async def test_a_reader_that_is_cancelled_cancels_the_turn(self, orchestrator: Any) -> None:
        hanging = Hanging()
        stage = Stage([calling(("c1", "hang"))], [hanging]).record()

        async def read() -> list[str]:
            return [fragment async for fragment in orchestrator.execute_stream("Hello", **stage.inputs())]

        task = asyncio.create_task(read())
        await hanging.started.wait()
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        assert json.loads(stage.results[0]) == cancelled_result("hang")
        assert ends_in_order(stage)

    async def test_a_stream_that_is_never_read_starts_nothing(self, orchestrator: Any) -> None:
        stage = Stage([answer()]).record()

        stream = orchestrator.execute_stream("Hello", **stage.inputs())
        await stream.aclose()

        assert stage.events == []

    async def test_an_error_reaches_the_reader(self, orchestrator: Any) -> None:
        def full(_: Any) -> Any:
            raise OSError("the disk is full")

        stage = Stage([answer()], context=SimpleNamespace(add_message=full))

        with pytest.raises(OSError, match="the disk is full"):
            [fragment async for fragment in orchestrator.execute_stream("Hello", **stage.inputs())]


class TestDispatchContext:
    async def test_every_running_call_finds_its_own_and_nothing_is_left(self, orchestrator: Any) -> None:
        stage, seen = Stage(), dict[str, Any]()

        async def look(input: dict[str, Any]) -> None:
            contexts = stage.coordinator._tool_dispatch_contexts  # type: ignore[union-attr]
            await asyncio.sleep(0.001 * input["wait"])
            seen[input["who"]] = dict(contexts[asyncio.current_task()])
            assert stage.coordinator._tool_dispatch_context["tool_call_id"]  # type: ignore[union-attr]

        delegate = FunctionTool("delegate", look)
        calls = calling(("c1", "delegate", {"who": "a", "wait": 2}), ("c2", "delegate", {"who": "b", "wait": 1}))
        stage = Stage([calls, answer()], [delegate]).record("tool:pre")

        await stage.run(orchestrator)

        group_id = stage.payloads("tool:pre")[0]["parallel_group_id"]
        assert seen == {
            "a": {"tool_call_id": "c1", "parallel_group_id": group_id},
            "b": {"tool_call_id": "c2", "parallel_group_id": group_id},
        }
        assert stage.coordinator._tool_dispatch_contexts == {}  # type: ignore[union-attr]
        assert stage.coordinator._tool_dispatch_context == {}  # type: ignore[union-attr]

    @pytest.mark.parametrize("make", [lambda: "frozen", lambda: SlottedCoordinator()], ids=["text", "slots"])
    async def test_a_coordinator_that_takes_no_attributes_is_no_obstacle(
        self, orchestrator: Any, make: Callable[[], Any]
    ) -> None:
        stage = Stage([calling(("c1", "echo")), answer()], [echo()])

        text = await orchestrator.execute(
            "Hello", stage.context, stage.providers, stage.tools, stage.hooks, coordinator=make()
        )

        assert text == "done"


class SlottedCoordinator:
    __slots__ = ()
