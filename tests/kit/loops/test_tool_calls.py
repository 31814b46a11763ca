"""Running a batch of calls, apart from the turn it belongs to."""

import asyncio
import logging
import uuid
from typing import Any

import pytest

from amplifier_core import HookRegistry, HookResult, ToolResult
from amplifier_core.testing import EventRecorder, MockTool
from amplifier_core.utils.tool_messages import Call
from amplifier_kit.loops.hook_points import HookPoints
from amplifier_kit.loops.tool_calls import Cancellation, ToolCalls, uuid_series
from amplifier_kit.loops.turn_task import TurnTask


class Tool:
    description = "A tool for tests."

    def __init__(self, function: Any) -> None:
        self._function = function

    async def execute(self, input: dict[str, Any]) -> Any:
        return await self._function(input)


def tool_calls(tools: dict[str, Any], hooks: HookRegistry | None = None) -> ToolCalls:
    points = HookPoints(hooks or HookRegistry(), None, None)
    return ToolCalls(TurnTask(), Cancellation(None), points, tools, None)


async def test_every_outcome_gets_its_content() -> None:
    runner = tool_calls({"mock": MockTool("mock", "fine")})
    batch = runner.new_batch([Call("c1", "mock"), Call("c2", "missing"), Call("c3", "mock", problem="broken")])

    assert await runner.run(batch) is None

    assert [outcome.content for outcome in batch] == [
        "fine",
        "Error: Tool 'missing' not found",
        "Error executing tool: invalid arguments: broken",
    ]


async def test_an_early_stop_leaves_the_rest_without_content() -> None:
    runner = tool_calls({"mock": MockTool("mock", "fine")})
    batch = runner.new_batch([Call("c1", "mock"), Call("c2", "mock")])

    await runner.run(batch, parallel=False, should_stop=lambda: True)

    assert [outcome.content for outcome in batch] == ["fine", None]


async def test_what_ended_a_batch_is_handed_back_when_all_calls_have_ended() -> None:
    ended: list[str] = []

    async def give_up(_: Any) -> None:
        raise asyncio.CancelledError

    async def hang(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("hang")

    runner = tool_calls({"hang": Tool(hang), "give_up": Tool(give_up), "mock": MockTool("mock", "fine")})
    batch = runner.new_batch([Call("c1", "hang"), Call("c2", "mock"), Call("c3", "give_up")])

    interruption = await runner.run(batch)

    assert isinstance(interruption, asyncio.CancelledError)
    assert ended == ["hang"]
    assert [outcome.content for outcome in batch] == [None, "fine", None]


async def test_an_injection_waits_in_the_outcome() -> None:
    async def inject(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection=event)

    hooks = HookRegistry()
    hooks.register("tool:pre", inject)
    hooks.register("tool:post", inject)
    runner = tool_calls({"mock": MockTool("mock")}, hooks)
    batch = runner.new_batch([Call("c1", "mock")])

    await runner.run(batch)

    assert [injection.event for injection in batch[0].injections] == ["tool:pre", "tool:post"]


async def test_a_loop_can_have_its_own_words() -> None:
    class Polite(ToolCalls):
        def denied_text(self, reason: str) -> str:
            return f"Sorry: {reason}"

    async def deny(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="closed")

    hooks = HookRegistry()
    hooks.register("tool:pre", deny)
    runner = Polite(TurnTask(), Cancellation(None), HookPoints(hooks, None, None), {"mock": MockTool("mock")}, None)
    batch = runner.new_batch([Call("c1", "mock")])

    await runner.run(batch)

    assert batch[0].content == "Sorry: closed"


async def test_a_result_is_presented_to_hooks_without_its_images() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    seen: list[Any] = []

    async def look(event: str, data: dict[str, Any]) -> HookResult:
        seen.append(data["result"])
        return HookResult()

    hooks = HookRegistry()
    hooks.register("tool:post", look)
    runner = tool_calls({"mock": MockTool("mock", ToolResult(output="x", content=[image]))}, hooks)
    batch = runner.new_batch([Call("c1", "mock")])

    await runner.run(batch)

    assert "AAAA" not in str(seen)
    assert batch[0].content == [image]


def test_group_ids_are_uuids_of_version_four_and_differ() -> None:
    series, other = uuid_series(), uuid_series()

    ids = [next(series) for _ in range(1000)] + [next(other)]

    assert len(set(ids)) == 1001
    assert all(str(parsed) == text and parsed.version == 4 for text in ids for parsed in [uuid.UUID(text)])
    assert all(uuid.UUID(text).variant == uuid.RFC_4122 for text in ids)


async def test_a_tool_that_raises_leaves_a_warning_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def look_up(arguments: dict[str, Any]) -> Any:
        return {}["api_token"]

    runner = tool_calls({"lookup": Tool(look_up)})
    batch = runner.new_batch([Call("c1", "lookup")])

    await runner.run(batch)

    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "tool 'lookup' raised")
    assert "KeyError: 'api_token'" in caplog.text
    assert "KeyError" in str(batch[0].content)


class Approved:
    approved, reason = True, "yes"


class Gated:
    """A coordinator whose gate is a function."""

    def __init__(self, gate: Any) -> None:
        self._gate = gate

    def get_capability(self, name: str) -> Any:
        return self._gate if name == "approval.gate" else None


async def test_the_gate_is_asked_about_what_the_hooks_left_and_that_is_what_runs() -> None:
    asked, ran = list[Any](), list[Any]()

    async def gate(tool_name: str, frozen_input: dict[str, Any], call: Any) -> Any:
        asked.append((tool_name, dict(frozen_input), call["tool_call_id"]))
        return Approved

    async def execute(given: dict[str, Any]) -> str:
        ran.append(given)
        return "done"

    async def mutate(event: str, data: dict[str, Any]) -> None:
        data["tool_input"]["n"] = 2

    hooks = HookRegistry()
    hooks.register("tool:pre", mutate)
    coordinator = Gated(gate)
    runner = ToolCalls(
        TurnTask(), Cancellation(None), HookPoints(hooks, coordinator, None), {"t": Tool(execute)}, coordinator
    )
    call = Call("c1", "t", {"n": 1})
    await runner.run(runner.new_batch([call]))

    assert asked == [("t", {"n": 2}, "c1")]
    assert ran == [{"n": 2}]
    assert call.arguments == {"n": 1}


async def test_a_call_that_is_changed_after_the_yes_does_not_run_and_is_reported() -> None:
    recorder, ran = EventRecorder(), list[Any]()

    async def gate(tool_name: str, frozen_input: dict[str, Any], call: Any) -> Any:
        frozen_input["command"] = "another"
        return Approved

    async def execute(given: dict[str, Any]) -> str:
        ran.append(given)
        return "done"

    hooks = HookRegistry()
    hooks.register("policy:violation", recorder.record)
    coordinator = Gated(gate)
    runner = ToolCalls(
        TurnTask(), Cancellation(None), HookPoints(hooks, coordinator, None), {"t": Tool(execute)}, coordinator
    )
    batch = runner.new_batch([Call("c1", "t", {"command": "one"})])
    await runner.run(batch)

    assert ran == []
    assert batch[0].content == "Denied by hook: its input was changed after it had been approved"
    assert [data["reason"] for _, data in recorder.events] == ["changed-after-approval"]


async def broken_gate(*question: Any) -> Any:
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    "gate", [broken_gate, lambda *question: Approved, object()], ids=["raises", "sync", "no function"]
)
async def test_a_gate_that_cannot_decide_denies(gate: Any) -> None:
    coordinator = Gated(gate)
    hooks = HookPoints(HookRegistry(), coordinator, None)
    runner = ToolCalls(TurnTask(), Cancellation(None), hooks, {"mock": MockTool("mock", "fine")}, coordinator)
    batch = runner.new_batch([Call("c1", "mock")])
    await runner.run(batch)

    assert str(batch[0].content).startswith("Denied by hook: Approval failed: ")
