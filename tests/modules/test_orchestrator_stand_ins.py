"""Every orchestrator runs with what stands in for the kernel's registry and coordinator, or without them."""

import gc
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from module_folders import folders_of_type
from turns import Stage, answer, calling, echo, mounted, texts_of

from amplifier_core import HookRegistry, HookResult

DENY = HookResult(action="deny", reason="not today")
SHOW_ONCE = HookResult(action="inject_context", context_injection="passing note", ephemeral=True)

pytestmark = pytest.mark.usefixtures("frozen_past")


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


@pytest.mark.parametrize(
    ("failing", "runs"),
    [
        ("prompt:submit", 1),
        ("provider:request", 1),
        ("tool:post", 1),
        ("tool:pre", 0),
        ("provider:response", 1),
        ("execution:start", 1),
        ("content_block:start", 1),
        ("orchestrator:complete", 1),
        ("execution:end", 1),
    ],
)
async def test_a_registry_that_fails_stops_no_turn_but_no_unseen_tool_runs(
    orchestrator: Any, stage: Stage, failing: str, runs: int
) -> None:
    class Failing(HookRegistry):
        async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
            if event == failing:
                raise ConnectionError("the registry is elsewhere")
            return HookResult()

    stage.hooks = Failing()

    assert await stage.run(orchestrator) == "done"

    assert len(stage.tools["echo"].inputs) == runs
    assert len(stage.results) == 1


async def test_without_a_registry_no_hook_is_asked(orchestrator: Any) -> None:
    stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()], with_coordinator=False)
    stage.hooks = None  # type: ignore[assignment]

    assert await stage.run(orchestrator) == "done"

    assert stage.results == ['{"n": 1}']


async def test_without_a_registry_of_its_own_the_hooks_of_the_session_are_asked(orchestrator: Any) -> None:
    stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()]).on("tool:pre", DENY)
    stage.hooks = None  # type: ignore[assignment]

    await stage.run(orchestrator)

    assert "not today" in stage.results[0]


async def test_a_coordinator_may_make_a_coroutine_of_everything(orchestrator: Any) -> None:
    stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()], with_coordinator=False)
    coordinator = AsyncMock()

    assert await orchestrator.execute("Hello", **stage.inputs(), coordinator=coordinator) == "done"

    coordinator.cancellation.register_tool_complete.assert_called_once_with("c1")
    gc.collect()  # so that a coroutine that was never awaited is reported now


async def test_a_coordinator_need_not_be_awaited(orchestrator: Any) -> None:
    stage = Stage([answer()], with_coordinator=False).on("prompt:submit", SHOW_ONCE)
    coordinator = SimpleNamespace(process_hook_result=lambda result, event, hook_name: result)

    await orchestrator.execute("Hello", **stage.inputs(), coordinator=coordinator)

    assert texts_of(stage.provider.requests[0]) == ["Hello", "passing note"]


@pytest.mark.parametrize(
    "returned",
    [
        None,
        SimpleNamespace(action="continue", data=None),
        SimpleNamespace(action="continue", data=["not a dict"]),
        SimpleNamespace(action="applaud", data={"prompt": "changed", "tool_input": {"n": 9}, "result": "changed"}),
        SimpleNamespace(),
    ],
    ids=["none", "no data", "list", "unknown action", "nothing"],
)
async def test_a_registry_that_answers_strangely_changes_nothing(
    orchestrator: Any, stage: Stage, returned: Any
) -> None:
    class Strange:
        async def emit(self, event: str, data: dict[str, Any]) -> Any:
            return returned

    stage.hooks = Strange()  # type: ignore[assignment]

    assert await stage.run(orchestrator) == "done"

    assert stage.messages[0]["content"] == "Hello"
    assert stage.results == ['{"n": 1}']


async def test_a_registry_that_copies_through_json_changes_nothing(orchestrator: Any, stage: Stage) -> None:
    class Copying:
        async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
            return HookResult(action="continue", data=json.loads(json.dumps(data)))

    stage.hooks = Copying()  # type: ignore[assignment]

    assert await stage.run(orchestrator) == "done"

    assert stage.tools["echo"].inputs == [{"n": 1}]
    assert stage.results == ['{"n": 1}']


async def test_a_registry_that_answers_modify_itself_is_understood(orchestrator: Any, stage: Stage) -> None:
    class Modifying:
        async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
            if event == "tool:pre":
                return HookResult(action="modify", data={**data, "tool_input": {"n": 2}})
            return HookResult()

    stage.hooks = Modifying()  # type: ignore[assignment]

    await stage.run(orchestrator)

    assert stage.tools["echo"].inputs == [{"n": 2}]
