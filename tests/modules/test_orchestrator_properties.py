"""Laws of every orchestrator: whatever models, tools, hooks and users do, transcript and events stay in order."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from module_folders import folders_of_type
from turns import FunctionTool, ListContext, Stage, mounted, orphans, unpaired

from amplifier_core import ChatResponse, HookResult, ProviderUnavailableError, TextBlock, ToolResult


async def pause(_: Any) -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return "paused"


async def swallow_cancellation(_: Any) -> str:
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return "went on"
    return "went on"


def fail(_: Any) -> Any:
    raise OSError("no disk")


def cancel_itself(_: Any) -> Any:
    raise asyncio.CancelledError


TOOLS = {
    "quick": lambda _: ToolResult(output="quick"),
    "pause": pause,
    "stubborn": swallow_cancellation,
    "fail": fail,
    "refuse": lambda _: ToolResult(success=False, error={"message": "no"}),
    "give_up": cancel_itself,
    "blocks": lambda _: ToolResult(output="x", content=[{"type": "text", "text": "shown"}]),
}
DECIDING = ("prompt:submit", "provider:request", "tool:pre", "tool:post", "tool:selecting")
OTHERS = ("execution:start", "provider:response", "content_block:start", "execution:end", "orchestrator:complete")
ANSWERS = {
    "continue": HookResult(),
    "deny": HookResult(action="deny", reason="no"),
    "modify": HookResult(action="modify", data={"tool_input": {}, "result": {"a": 1}, "tool": "quick"}),
    "store": HookResult(action="inject_context", context_injection="note"),
    "show": HookResult(action="inject_context", context_injection="note", ephemeral=True),
    "append": HookResult(
        action="inject_context", context_injection="note", ephemeral=True, append_to_last_tool_result=True
    ),
    "ask": HookResult(action="ask_user"),
}


@dataclass(frozen=True)
class Script:
    """One turn: what the model does, what hooks answer, and who gives up when."""

    rounds: list[Any]
    answers: dict[str, list[str]]
    waiting: frozenset[str]
    decision: str
    config: dict[str, Any]
    cancelled_by: str
    after_steps: int
    repeated: bool
    slow_context: bool
    with_coordinator: bool


calls = st.fixed_dictionaries(
    {
        "name": st.sampled_from([*TOOLS, "missing"]),
        "arguments": st.sampled_from(["", "{}", '{"a": 1}', "{broken", "[1]"]),
    }
)
rounds = st.lists(
    st.one_of(st.lists(calls, min_size=1, max_size=4), st.sampled_from(["text", "nothing", "error"])), max_size=4
)
scripts = st.builds(
    Script,
    rounds=rounds,
    answers=st.dictionaries(st.sampled_from(DECIDING), st.lists(st.sampled_from([*ANSWERS]), min_size=1, max_size=3)),
    waiting=st.frozensets(st.sampled_from([*DECIDING, *OTHERS])),
    decision=st.sampled_from(["Allow", "Deny"]),
    config=st.fixed_dictionaries(
        {"max_iterations": st.sampled_from([-1, 0, 1, 2])}, optional={"provider_failover": st.booleans()}
    ),
    cancelled_by=st.sampled_from(["nobody", "task", "graceful", "immediate"]),
    after_steps=st.integers(0, 60),
    repeated=st.booleans(),
    slow_context=st.booleans(),
    with_coordinator=st.booleans(),
)


def response_of(number: int, content: Any) -> Any:
    if content == "text":
        return ChatResponse(content=[TextBlock(text=f"part {number}")])
    if content == "nothing":
        return ChatResponse(content=[])
    if content == "error":
        return ProviderUnavailableError("down")
    tool_calls = [{"id": f"c{number}-{place}", **call} for place, call in enumerate(content)]
    blocks = [{"type": "tool_call", "id": call["id"], "name": call["name"], "input": {}} for call in tool_calls]
    response = ChatResponse(content=blocks)
    response.tool_calls = tool_calls  # type: ignore[assignment] # as some providers leave them
    return response


def stage_for(script: Script) -> Stage:
    stage = Stage(
        [response_of(number, content) for number, content in enumerate(script.rounds)],
        [FunctionTool(name, function) for name, function in TOOLS.items()],
        context=ListContext(pause=script.slow_context),
        with_coordinator=script.with_coordinator,
    ).record()
    if stage.coordinator is not None:
        stage.coordinator.approval_system.request_approval.return_value = script.decision
    for event in script.waiting:
        stage.on(event, lambda data: asyncio.sleep(0))
    for event, answers in script.answers.items():
        counter = iter(answers * 20)
        stage.on(event, lambda data, counter=counter: ANSWERS[next(counter, "continue")].model_copy(deep=True))
    return stage


async def perform(script: Script, folder: Path) -> tuple[Stage, asyncio.Task[str]]:
    stage = stage_for(script)
    task = asyncio.create_task(stage.run(await mounted(folder, script.config)))
    for _ in range(script.after_steps):
        await asyncio.sleep(0)
    if script.cancelled_by == "task":
        task.cancel()
        while script.repeated and not task.done():
            await asyncio.sleep(0)
            task.cancel()
    elif script.cancelled_by != "nobody" and stage.coordinator is not None:
        getattr(stage.coordinator.cancellation, f"request_{script.cancelled_by}")()
    await asyncio.wait([task])
    return stage, task


@pytest.mark.parametrize("folder", folders_of_type("orchestrator"), ids=lambda folder: folder.name)
@given(script=scripts)
def test_no_call_stays_without_its_result_and_no_event_without_its_counterpart(folder: Path, script: Script) -> None:
    stage, task = asyncio.run(perform(script, folder))

    assert list(orphans(stage.messages)) == []
    if stage.events:  # a task cancelled before its first step does nothing at all
        assert list(unpaired(stage.events)) == []
        status = stage.payload("orchestrator:complete")["status"]
        if status == "cancelled":
            assert stage.messages == [] or stage.messages[-1]["role"] != "tool"
        if not task.cancelled() and task.exception() is None:
            assert isinstance(task.result(), str)
    if stage.coordinator is not None:
        assert stage.coordinator.cancellation.running_tools == set()
        assert getattr(stage.coordinator, "_tool_dispatch_contexts", {}) == {}
