"""Every orchestrator in `modules/` keeps the orchestrator contract, each item of its checklists."""

import asyncio
import gc
import importlib
import inspect
import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from module_folders import folders_of_type
from turns import Stage, answer, calling, echo, entry_point_of, mounted, package_of

from amplifier_core import AmplifierSession, HookRegistry, HookResult, ProviderUnavailableError
from amplifier_core.events import ALL_EVENTS
from amplifier_core.interfaces import Orchestrator
from amplifier_core.testing import EventRecorder, MockContextManager, MockCoordinator, MockProvider, MockTool
from amplifier_core.validation import OrchestratorValidator
from amplifier_core.validation.behavioral import OrchestratorBehaviorTests
from amplifier_core.validation.structural import OrchestratorStructuralTests

FOLDERS = folders_of_type("orchestrator")
CONTEXT = Path(__file__).parents[2] / "modules/context-simple"

pytestmark = pytest.mark.usefixtures("frozen_past")


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    """The folder of one orchestrator."""
    found: Path = request.param
    return found


@pytest.fixture
def mount(folder: Path) -> Any:
    """What the folder's own entry point names."""
    return entry_point_of(folder)


@pytest.fixture
async def orchestrator(folder: Path) -> Any:
    """The orchestrator, mounted with defaults."""
    return await mounted(folder)


def test_the_three_loops_are_found() -> None:
    assert {"loop-basic", "loop-streaming", "loop-events"} <= {folder.name for folder in FOLDERS}


class TestShippedBases(OrchestratorBehaviorTests, OrchestratorStructuralTests):
    """The kernel's own test classes for authors of orchestrators."""

    @pytest.fixture
    def module_path(self, folder: Path) -> Path:
        return folder / package_of(folder)


class TestMounting:
    @pytest.mark.parametrize("config", [{}, None], ids=["empty", "none"])
    async def test_it_mounts_without_configuration_and_returns_nothing(self, mount: Any, config: Any) -> None:
        coordinator = MockCoordinator()

        returned = await mount(coordinator, config)

        assert returned is None
        ((mount_point, name),) = [(entry["mount_point"], entry["name"]) for entry in coordinator.mount_history]
        assert (mount_point, name) == ("orchestrator", None)
        assert isinstance(coordinator.get("orchestrator"), Orchestrator)

    async def test_configuration_is_optional_for_mount(self, mount: Any) -> None:
        coordinator = MockCoordinator()

        await mount(coordinator)

        assert coordinator.get("orchestrator") is not None

    async def test_the_configuration_is_left_as_it_was(self, folder: Path) -> None:
        config = {"max_iterations": "3", "extended_thinking": "true", "default_provider": None}

        await mounted(folder, config)

        assert config == {"max_iterations": "3", "extended_thinking": "true", "default_provider": None}

    async def test_a_stub_that_can_only_mount_is_enough(self, mount: Any) -> None:
        slots: dict[str, Any] = {}

        async def take(mount_point: str, module: Any) -> None:
            slots[mount_point] = module

        await mount(SimpleNamespace(mount=take), {})

        assert callable(slots["orchestrator"].execute)

    async def test_a_stub_whose_other_attributes_are_none_is_enough(self, mount: Any) -> None:
        slots: dict[str, Any] = {}

        async def take(mount_point: str, module: Any) -> None:
            slots[mount_point] = module

        names = ("hooks", "register_contributor", "register_capability", "get_capability", "collect_contributions")
        rest = ("session_state", "session_id", "cancellation")
        await mount(SimpleNamespace(mount=take, **dict.fromkeys((*names, *rest))), {})

        assert callable(slots["orchestrator"].execute)

    async def test_a_mock_that_answers_everything_will_do_as_coordinator(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()], with_coordinator=False)
        stage.coordinator = MagicMock()

        assert await stage.run(orchestrator) == "done"

        assert stage.results == ['{"n": 1}']

    async def test_mocks_that_make_a_coroutine_of_everything_will_do_as_provider_and_tool(
        self, orchestrator: Any
    ) -> None:
        tool, provider = AsyncMock(description="Says it again."), AsyncMock(stream=None)
        tool.execute.return_value = "again"
        provider.complete.side_effect = [calling(("c1", "echo", {"n": 1})), answer()]
        stage = Stage(provider=provider)
        stage.tools["echo"] = tool

        assert await stage.run(orchestrator) == "done"

        assert stage.results == ["again"]
        assert provider.complete.call_args.args[0].tools[0].parameters == {"type": "object", "properties": {}}
        gc.collect()  # so that a coroutine that was never awaited is reported now

    async def test_it_mounts_by_path_in_a_session(self, folder: Path) -> None:
        plan = {
            "session": {
                "orchestrator": {"module": folder.name, "source": str(folder)},
                "context": {"module": CONTEXT.name, "source": str(CONTEXT)},
            }
        }
        async with AmplifierSession(plan) as session:
            await session.coordinator.mount("providers", MockProvider(["Hello there"]), name="mock")

            text = await session.execute("Hello")

        assert (text, session.status.status) == ("Hello there", "completed")

    async def test_the_validator_finds_nothing_wrong(self, folder: Path) -> None:
        result = await OrchestratorValidator().validate(folder)

        assert [check for check in result.checks if not check.passed] == []

    def test_the_package_declares_its_type_and_imports_quietly(self, folder: Path) -> None:
        module = importlib.import_module(package_of(folder))

        assert module.__amplifier_module_type__ == "orchestrator"

    async def test_mounting_is_logged_once(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            await mounted(folder, {})

        assert [record.message for record in caplog.records] == [f"mounted {folder.name}"]


class TestConfiguration:
    BAD = (
        ("max_iterations", -2),
        ("max_iterations", 1.5),
        ("max_iterations", "many"),
        ("max_iterations", True),
        ("default_provider", 7),
        ("extended_thinking", "perhaps"),
        ("reasoning_effort", ["high"]),
        ("timeout", "soon"),
        ("timeout", float("nan")),
        ("provider_failover", "perhaps"),
        ("max_empty_responses", 0),
    )

    @pytest.mark.parametrize(("key", "value"), BAD, ids=lambda part: repr(part))
    async def test_a_bad_value_is_refused_by_module_key_value_and_range(
        self, folder: Path, key: str, value: Any
    ) -> None:
        with pytest.raises(ValueError, match="allowed: ") as refusal:
            await mounted(folder, {key: value})

        assert all(part in str(refusal.value) for part in (folder.name, repr(key), repr(value)))

    async def test_unknown_keys_are_named_in_one_warning(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        await mounted(folder, {"max_iteration": 3, "verbose": True, "max_iterations": 3})

        (warning,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        assert folder.name in warning
        assert warning.endswith("max_iteration, verbose")

    async def test_numbers_and_booleans_may_be_given_as_text(self, folder: Path) -> None:
        orchestrator = await mounted(folder, {"max_iterations": "1", "timeout": "2.5", "extended_thinking": "true"})
        stage = Stage(["done"])

        await stage.run(orchestrator)

        assert stage.provider.requests[0].timeout == 2.5

    async def test_none_stands_for_the_default(self, folder: Path) -> None:
        orchestrator = await mounted(folder, {"max_iterations": None, "timeout": None, "max_empty_responses": None})

        assert await Stage(["done"]).run(orchestrator) == "done"


class TestRequiredItems:
    async def test_execute_takes_the_five_arguments_of_the_contract_and_returns_text(self, orchestrator: Any) -> None:
        context, tool = MockContextManager(), MockTool("test_tool")

        result = await orchestrator.execute(
            prompt="Test prompt",
            context=context,
            providers={"test": MockProvider(["An answer"])},
            tools={"test_tool": tool},
            hooks=HookRegistry(),
        )

        assert result == "An answer"
        assert len(context.messages) > 0

    async def test_the_standard_events_come_with_the_contracts_keys(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()]).record()

        await stage.run(orchestrator)

        asked, asked_again = stage.payloads("provider:request")
        assert {"provider", "messages", "model"} <= asked.keys()
        assert asked_again["messages"][-1]["role"] == "tool"
        assert all({"provider", "response", "usage"} <= data.keys() for data in stage.payloads("provider:response"))
        assert stage.payload("tool:pre")["tool_name"] == "echo"
        assert stage.payload("tool:pre")["tool_input"] == {"n": 1}
        assert stage.payload("tool:post")["tool_result"] == {"success": True, "output": {"n": 1}, "error": None}

    async def test_a_registry_that_only_emits_gets_every_event_too(self, orchestrator: Any) -> None:
        stage, recorder = Stage([calling(("c1", "echo")), answer()], [echo()]), EventRecorder()

        await orchestrator.execute("Hello", stage.context, stage.providers, stage.tools, recorder)

        names = [event for event, _ in recorder.events]
        for event in ("provider:request", "provider:response", "tool:pre", "tool:post", "orchestrator:complete"):
            assert event in names

    @pytest.mark.parametrize("with_coordinator", [True, False], ids=["coordinator", "alone"])
    async def test_a_denied_tool_does_not_run(self, orchestrator: Any, with_coordinator: bool) -> None:
        tool = echo()
        stage = Stage([calling(("c1", "echo")), answer()], [tool], with_coordinator=with_coordinator)
        stage.on("tool:pre", HookResult(action="deny", reason="not today"))

        assert await stage.run(orchestrator) == "done"

        assert tool.inputs == []
        assert "not today" in stage.results[0]

    async def test_messages_are_kept_in_the_order_of_the_conversation(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo", {"n": 1})), answer()], [echo()])

        await stage.run(orchestrator)

        assert stage.context.roles == ["user", "assistant", "tool", "assistant"]
        prompt, call, result, final = stage.messages
        assert prompt == {"role": "user", "content": "Hello"}
        assert call["tool_calls"] == [{"id": "c1", "tool": "echo", "arguments": {"n": 1}}]
        assert (result["tool_call_id"], result["content"]) == ("c1", '{"n": 1}')
        assert [block["text"] for block in final["content"]] == ["done"]

    async def test_requests_are_built_from_the_view_the_context_gives_the_provider(self, orchestrator: Any) -> None:
        stage = Stage(["done"], context=MockContextManager())

        await stage.run(orchestrator)

        stage.context.get_messages_for_request.assert_awaited_with(provider=stage.provider)


class TestRecommendedItems:
    async def test_the_configured_one_of_several_providers_is_asked(self, folder: Path) -> None:
        stage, other = Stage(["from the first"]), MockProvider(["from the second"])
        stage.providers["provider-other"] = other

        text = await stage.run(await mounted(folder, {"default_provider": "other"}))

        assert (text, stage.provider.call_count, other.call_count) == ("from the second", 0, 1)

    async def test_the_number_of_rounds_is_limited(self, folder: Path) -> None:
        stage = Stage([calling((f"c{n}", "echo")) for n in range(9)], [echo()])

        text = await stage.run(await mounted(folder, {"max_iterations": 2}))

        assert isinstance(text, str)
        assert stage.provider.call_count == 3  # two rounds and the summary

    async def test_a_provider_that_fails_is_announced_and_the_turn_ends_in_order(self, orchestrator: Any) -> None:
        stage = Stage([ProviderUnavailableError("it is down")]).record()

        try:
            outcome = await stage.run(orchestrator)
        except ProviderUnavailableError as exc:
            outcome = str(exc)

        assert "it is down" in outcome
        assert stage.payload("provider:error")["error"] == {"type": "ProviderUnavailableError", "msg": "it is down"}
        assert stage.payload("execution:end")["status"] == "error"
        assert stage.payload("orchestrator:complete")["status"] == "error"

    async def test_events_beyond_the_kernels_list_are_announced(self, mount: Any) -> None:
        coordinator = MockCoordinator()
        await mount(coordinator, {})
        (contributed,) = await coordinator.collect_contributions("observability.events")
        assert await coordinator.collect_contributions("observability.events") == [contributed]
        stage = Stage([calling(("c1", "echo"), ("c2", "missing")), answer()], [echo()])
        recorder = EventRecorder()

        await coordinator.get("orchestrator").execute("Hello", stage.context, stage.providers, stage.tools, recorder)

        emitted = {event for event, _ in recorder.events}
        assert emitted <= {*ALL_EVENTS, *contributed}

    async def test_the_answer_can_be_read_from_an_async_generator(self, orchestrator: Any) -> None:
        stage = Stage([calling(("c1", "echo")), answer("two  words")], [echo()])
        assert inspect.isasyncgenfunction(orchestrator.execute_stream)

        fragments = [fragment async for fragment in orchestrator.execute_stream("Hello", **stage.inputs())]

        assert "".join(fragments) == "two  words"
        assert all(fragments)


async def test_turns_of_one_orchestrator_may_run_at_the_same_time(orchestrator: Any) -> None:
    def stage_of(number: int) -> Stage:
        calls = [calling((f"c{number}", "echo", {"n": number})), answer(f"answer {number}")]
        stage = Stage(calls, [echo()]).record()
        stage.on("provider:request", lambda data: asyncio.sleep(0))
        return stage.on("tool:post", lambda data: asyncio.sleep(0))

    stages = [stage_of(number) for number in range(5)]

    texts = await asyncio.gather(*(stage.run(orchestrator) for stage in stages))

    assert texts == [f"answer {number}" for number in range(5)]
    assert [stage.results for stage in stages] == [[f'{{"n": {number}}}'] for number in range(5)]
    assert all(len(stage.payloads("orchestrator:complete")) == 1 for stage in stages)


class TestReadme:
    ENTRY = re.compile(r"```json\n(\{.*?\n\})\n```", re.DOTALL)
    ROW = re.compile(r"^\| (`[^|]*`) \| ([^|]*) \|", re.MULTILINE)

    async def test_its_entry_for_a_mount_plan_runs(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        entry = json.loads(self.ENTRY.findall((folder / "README.md").read_text(encoding="utf-8"))[0])
        plan = {
            "session": {
                "orchestrator": {**entry, "source": str(folder)},
                "context": {"module": CONTEXT.name, "source": str(CONTEXT)},
            }
        }
        async with AmplifierSession(plan) as session:
            await session.coordinator.mount("tools", echo())
            await session.coordinator.mount("providers", MockProvider([calling(("c1", "echo")), answer()]), name="mock")

            assert await session.execute("Hello") == "done"

        assert entry["module"] == folder.name
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    async def test_the_keys_and_defaults_it_names_are_accepted(
        self, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        rows = self.ROW.findall((folder / "README.md").read_text(encoding="utf-8"))
        keys = {key: kind for names, kind in rows for key in re.findall("`([a-z_]+)`", names) if ":" not in names}
        defaults = {key: re.search("`(.*)`", kind) for key, kind in keys.items()}

        await mounted(folder, {key: json.loads(found[1]) if found else None for key, found in defaults.items()})

        assert len(keys) > 6
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
