"""The contract of context managers, for every context module of the repository."""

import importlib
import json
import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from module_folders import folders_of_type, package_of

from amplifier_core import AmplifierSession, ModuleCoordinator
from amplifier_core.events import ALL_EVENTS
from amplifier_core.interfaces import ContextManager
from amplifier_core.testing import MockCoordinator, MockProvider
from amplifier_core.validation import ContextValidator
from amplifier_core.validation.behavioral.test_context import ContextBehaviorTests

Message = dict[str, Any]

FOLDERS = folders_of_type("context")


def test_the_repositorys_contexts_are_found() -> None:
    assert {folder.name for folder in FOLDERS} >= {"context-simple", "context-persistent"}


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    """The folder of a context module."""
    path: Path = request.param
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory and a working directory of the test's own."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def module(folder: Path) -> ModuleType:
    return importlib.import_module(package_of(folder).name)


class Mounting:
    """Mounts the module on coordinators of its own and cleans all of them up."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._cleanups: list[Any] = []

    async def __call__(self, config: dict[str, Any] | None = None, coordinator: Any = None) -> tuple[Any, Any, Any]:
        """Return the context, its coordinator and its cleanup."""
        coordinator = MockCoordinator() if coordinator is None else coordinator
        cleanup = await self._module.mount(coordinator, config)
        self._cleanups.append(cleanup)
        return coordinator.get("context"), coordinator, cleanup

    def clean_up(self) -> None:
        for cleanup in self._cleanups:
            if cleanup is not None:
                cleanup()


@pytest.fixture
def mount(module: ModuleType) -> Iterator[Mounting]:
    mounting = Mounting(module)
    yield mounting
    mounting.clean_up()


def exchange(number: int, size: int = 400) -> list[Message]:
    call_id = f"call_{number}"
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "tool": "read", "arguments": {}}]},
        {"role": "tool", "tool_call_id": call_id, "content": f"{number} " + "y" * size},
        {"role": "assistant", "content": f"answer {number}"},
    ]


async def answer_of(plan: dict[str, Any]) -> str:
    """What a session with this plan and a provider that always says the same answers."""
    async with AmplifierSession(plan) as session:
        await session.coordinator.mount("providers", MockProvider())
        return await session.execute("hi")


class TestBehavior(ContextBehaviorTests):
    """The kernel's own behavioural tests."""

    @pytest.fixture
    async def context_module(self, mount: Mounting) -> Any:
        context, _, _ = await mount({})
        return context


class TestPackaging:
    async def test_the_kernels_validator_has_no_complaint(self, folder: Path) -> None:
        result = await ContextValidator().validate(folder)

        assert (result.passed, result.warnings) == (True, [])

    def test_the_entry_point_is_named_like_the_folder(self, folder: Path, module: ModuleType) -> None:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]

        assert project["name"] == f"amplifier-module-{folder.name}"
        assert project["entry-points"]["amplifier.modules"] == {folder.name: f"{module.__name__}:mount"}

    @pytest.mark.parametrize("config", [{}, None])
    async def test_it_mounts_without_configuration(self, mount: Mounting, config: dict[str, Any] | None) -> None:
        context, _, _ = await mount(config)

        assert isinstance(context, ContextManager)

    async def test_it_mounts_on_a_stub(self, mount: Mounting) -> None:
        mounted: dict[str, Any] = {}

        async def mount_at(point: str, instance: Any) -> None:
            mounted[point] = instance

        stub = SimpleNamespace(mount=mount_at, get=mounted.get)

        context, _, _ = await mount({}, stub)

        await context.add_message({"role": "user", "content": "hi"})
        assert len(await context.get_messages_for_request()) == 1

    async def test_it_leaves_its_configuration_alone(self, mount: Mounting) -> None:
        config = {"max_tokens": "5000", "compact_threshold": None}

        await mount(config)

        assert config == {"max_tokens": "5000", "compact_threshold": None}

    @pytest.mark.parametrize("is_by_path", [True, False], ids=["by path", "by name"])
    async def test_a_session_loads_it(self, folder: Path, is_by_path: bool) -> None:
        source = {"context_source": str(folder)} if is_by_path else {}
        plan = {"session": {"orchestrator": "loop-basic", "context": folder.name, **source}}

        assert await answer_of(plan) == "Mock response"

    async def test_cleaning_up_leaves_no_handler_and_may_be_repeated(self, mount: Mounting) -> None:
        _, coordinator, cleanup = await mount({})

        results = [cleanup() for _ in range(2)] if cleanup is not None else []

        assert set(results) <= {None}
        assert [name for names in coordinator.hooks.list_handlers().values() for name in names] == []

    async def test_the_events_of_its_own_are_announced(self, mount: Mounting, folder: Path) -> None:
        _, coordinator, _ = await mount({})
        named = set(re.findall(r"`(context:\w+)`", (folder / "README.md").read_text(encoding="utf-8")))

        contributed = {
            event for events in await coordinator.collect_contributions("observability.events") for event in events
        }

        assert named - set(ALL_EVENTS) <= contributed

    async def test_it_says_once_that_it_mounted(
        self, mount: Mounting, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG):
            await mount({})

        assert caplog.messages.count(f"mounted {folder.name}") == 1


class TestReadme:
    def example(self, folder: Path) -> dict[str, Any]:
        blocks = re.findall(r"```json\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
        plan: dict[str, Any] = json.loads(blocks[0])
        return plan

    async def test_its_example_runs(self, folder: Path) -> None:
        assert await answer_of(self.example(folder)) == "Mock response"

    def test_its_example_is_about_this_module(self, folder: Path) -> None:
        assert self.example(folder)["session"]["context"] == folder.name

    async def test_it_has_every_key_with_its_default(self, folder: Path, mount: Mounting) -> None:
        context, _, _ = await mount({})
        text = (folder / "README.md").read_text(encoding="utf-8")
        for link in re.findall(r"\]\((\.\./\S+/README\.md)\)", text):
            text += (folder / link).read_text(encoding="utf-8")
        rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| `([^|]+)` \|", text, re.MULTILINE))

        told = {key: default for key, default in rows.items() if hasattr(context, key) and key != "protected_recent"}

        assert len(told) > 10
        for key, default in told.items():
            value = getattr(context, key)
            expected = json.loads(default) if default[0] in "[0123456789tf" else default
            assert value == expected, key


class TestConfiguration:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("max_tokens", 0),
            ("max_tokens", -1),
            ("max_tokens", "many"),
            ("max_tokens", 1.5),
            ("max_tokens", True),
            ("compact_threshold", 0),
            ("compact_threshold", 1.01),
            ("compact_threshold", "half"),
            ("compaction_threshold", 2),
            ("target_usage", 0),
            ("target_usage", 1.5),
            ("auto_compact", "maybe"),
            ("auto_compact", 1),
            ("protected_recent", -0.1),
            ("protected_recent", 1.1),
            ("protected_tool_results", "few"),
            ("truncate_chars", -1),
            ("compaction_notice_enabled", []),
            ("compaction_notice_token_reserve", -1),
            ("compaction_notice_verbosity", "chatty"),
            ("compaction_notice_min_level", 0),
            ("compaction_notice_min_level", 9),
            ("output_reserve_fraction", -0.1),
            ("output_reserve_fraction", 1.1),
            ("max_tool_result_bytes", 1023),
            ("image_token_estimate", "x"),
            ("image_token_estimate", -1),
        ],
    )
    async def test_a_value_out_of_range_names_module_key_and_value(
        self, mount: Mounting, folder: Path, key: str, value: Any
    ) -> None:
        with pytest.raises(ValueError, match="allowed") as caught:
            await mount({key: value})

        assert all(words in str(caught.value) for words in (folder.name, repr(key), repr(value)))

    @pytest.mark.parametrize(
        ("key", "given", "value"),
        [
            ("max_tokens", "5000", 5000),
            ("compact_threshold", "0.7", 0.7),
            ("compact_threshold", 1, 1.0),
            ("target_usage", "0.25", 0.25),
            ("auto_compact", "false", False),
            ("protected_recent", "0", 0.0),
            ("protected_recent", 1, 1.0),
            ("protected_tool_results", "-3", -3),
            ("truncate_chars", "0", 0),
            ("compaction_notice_enabled", "False", False),
            ("compaction_notice_token_reserve", "0", 0),
            ("compaction_notice_verbosity", "verbose", "verbose"),
            ("compaction_notice_min_level", "8", 8),
            ("output_reserve_fraction", "1", 1.0),
            ("token_meter", "actual", "actual"),
            ("max_tool_result_bytes", "1024", 1024),
            ("image_token_estimate", "0", 0),
        ],
    )
    async def test_numbers_and_truth_values_may_be_text(
        self, mount: Mounting, key: str, given: Any, value: Any
    ) -> None:
        context, _, _ = await mount({key: given})

        assert getattr(context, key) == value

    async def test_none_is_the_default(self, mount: Mounting) -> None:
        context, _, _ = await mount({"max_tokens": None, "auto_compact": None, "token_meter": None})

        assert (context.max_tokens, context.auto_compact, context.token_meter) == (200_000, True, "estimate")

    async def test_the_threshold_has_another_name(self, mount: Mounting) -> None:
        context, _, _ = await mount({"compaction_threshold": 0.7})

        assert context.compact_threshold == 0.7

    async def test_an_unknown_meter_is_the_estimate(self, mount: Mounting, caplog: pytest.LogCaptureFixture) -> None:
        context, _, _ = await mount({"token_meter": "scales"})

        assert context.token_meter == "estimate"
        assert caplog.text.count("scales") == 1

    async def test_unknown_keys_are_named_in_one_warning(
        self, mount: Mounting, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        await mount({"max_token": 5, "hooks": 1})

        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert [record.getMessage() for record in warnings] == [
            f"{folder.name}: unknown config keys are ignored: hooks, max_token"
        ]


class TestConversation:
    async def test_messages_come_back_in_order(self, mount: Mounting) -> None:
        context, _, _ = await mount({})
        for message in exchange(0):
            await context.add_message(message)

        for messages in (await context.get_messages(), await context.get_messages_for_request()):
            assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]

    async def test_a_session_is_resumed_by_setting_its_messages(self, mount: Mounting) -> None:
        context, _, _ = await mount({})

        await context.set_messages(exchange(0))

        assert await context.get_messages() == exchange(0)

    async def test_a_request_is_compacted_and_the_history_is_not(self, mount: Mounting) -> None:
        context, coordinator, _ = await mount({"max_tokens": 4000, "compaction_notice_enabled": False})
        heard: list[str] = []
        for event in ("context:pre_compact", "context:post_compact", "context:compaction"):
            coordinator.hooks.register(event, lambda event, data: heard.append(event))
        prompt = {"role": "system", "content": "You are kind."}
        history = [prompt, *(message for number in range(30) for message in exchange(number))]
        for message in history:
            await context.add_message(message)

        view = await context.get_messages_for_request()

        assert len(view) < len(history) == len(await context.get_messages())
        assert view[0]["content"] == prompt["content"]
        assert heard == ["context:pre_compact", "context:post_compact", "context:compaction"]
        for place, message in enumerate(view):
            if message["role"] == "tool":
                assert view[place - 1]["tool_calls"][0]["id"] == message["tool_call_id"]

    async def test_the_ceiling_of_the_configuration_holds_for_the_provider_too(self, mount: Mounting) -> None:
        model = SimpleNamespace(context_window=128_000, max_output_tokens=16_000)
        provider = SimpleNamespace(get_model_info=lambda: model)
        budgets = []
        for config in ({}, {"max_tokens": 60_000}):
            context, _, _ = await mount({**config, "compaction_notice_enabled": False}, ModuleCoordinator())
            await context.add_message({"role": "user", "content": "x" * 1_000_000})
            await context.get_messages_for_request(provider=provider)
            budgets.append(context.compaction_stats["budget"])

        assert budgets == [115_904, 60_000]

    async def test_what_requests_really_take_is_heard(self, mount: Mounting, folder: Path) -> None:
        context, coordinator, cleanup = await mount({"token_meter": "actual", "max_tokens": 4000})
        for number in range(10):
            for message in exchange(number):
                await context.add_message(message)
        assert coordinator.hooks.list_handlers("llm:response") == {"llm:response": [f"{folder.name}-meter"]}

        await coordinator.hooks.emit("llm:response", {"usage": {"input_tokens": 3500}})

        assert len(await context.get_messages_for_request()) < 40
        cleanup()
        assert coordinator.hooks.list_handlers("llm:response") == {"llm:response": []}
