"""The snippets of the published contracts for tools, providers and hooks work as they are written there."""

import asyncio
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import warm_python

from amplifier_core import (
    AmplifierSession,
    HookHandler,
    ModuleCoordinator,
    Provider,
    ThinkingBlock,
    Tool,
    ToolCall,
    ToolResult,
    events,
)
from amplifier_core.hooks import HookRegistry
from amplifier_core.models import HookResult
from amplifier_core.testing import EventRecorder, MockTool, TestCoordinator, create_test_coordinator
from amplifier_core.validation import ToolValidator
from amplifier_core.validation.base import import_module_from_path

QUICK_START = '''
from amplifier_core import ToolResult

# 1. Implement the Protocol from interfaces.py
class MyModule:
    name = "my-module"
    description = "Says which config it was given."

    def __init__(self, config):
        self.config = config

    async def execute(self, input):
        return ToolResult(output=self.config)

# 2. Provide mount() function
async def mount(coordinator, config):
    """Initialize and register module."""
    instance = MyModule(config)
    await coordinator.mount("tools", instance, name="my-module")
    return instance  # or cleanup function
'''

MY_TOOL = '''
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator, Tool, ToolResult


class MyTool:
    def __init__(self, config):
        self.config = config

    @property
    def name(self) -> str:
        return "my_tool"  # Used for invocation

    @property
    def description(self) -> str:
        return "Performs specific action with given parameters."

    async def _do_work(self, required_param):
        return 100 / len(required_param.strip())

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        try:
            # Validate input
            required_param = input.get("required_param")
            if not required_param:
                return ToolResult(
                    success=False,
                    error={"message": "required_param is required"}
                )

            # Do the work
            result = await self._do_work(required_param)

            return ToolResult(
                success=True,
                output=result
            )

        except Exception as e:
            return ToolResult(
                success=False,
                error={"message": str(e), "type": type(e).__name__}
            )

    def get_schema(self) -> dict:
        """Return JSON schema for tool input."""
        return {
            "type": "object",
            "properties": {
                "required_param": {
                    "type": "string",
                    "description": "Description of parameter"
                },
                "optional_param": {
                    "type": "integer",
                    "default": 10
                }
            },
            "required": ["required_param"]
        }


async def mount(coordinator: ModuleCoordinator, config: dict) -> Tool | Callable | None:
    """
    Initialize and register tool.

    Returns:
        - Tool instance
        - Cleanup callable (for resource cleanup)
        - None for graceful degradation
    """
    tool = MyTool(config=config)
    await coordinator.mount("tools", tool, name="my-tool")
    return tool
'''

MY_PROVIDER = '''
import logging
import os
from collections.abc import Callable

from amplifier_core import (
    ChatRequest, ChatResponse, ModelInfo, ModuleCoordinator, Provider, ProviderInfo, TextBlock, ToolCall, Usage
)

logger = logging.getLogger(__name__)


class Client:
    closed = False

    async def close(self):
        self.closed = True


class MyProvider:
    def __init__(self, api_key, config):
        self.api_key, self.config, self.client = api_key, config, Client()

    @property
    def name(self) -> str:
        return "my-provider"

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="my-provider", display_name="My provider")

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def complete(self, request: ChatRequest, **kwargs) -> ChatResponse:
        return ChatResponse(
            content=[TextBlock(text="Hello")], usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2)
        )

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


async def mount(coordinator: ModuleCoordinator, config: dict) -> Provider | Callable | None:
    """
    Initialize and return provider instance.

    Returns:
        - Provider instance (registered automatically)
        - Cleanup callable (for resource cleanup on unmount)
        - None for graceful degradation (e.g., missing API key)
    """
    api_key = config.get("api_key") or os.environ.get("MY_API_KEY")
    if not api_key:
        logger.warning("No API key - provider not mounted")
        return None

    provider = MyProvider(api_key=api_key, config=config)
    await coordinator.mount("providers", provider, name="my-provider")

    async def cleanup():
        await provider.client.close()

    return cleanup
'''

MY_HOOK = '''
from collections.abc import Callable

from amplifier_core import ModuleCoordinator
from amplifier_core.models import HookResult


async def my_validation_hook(event, data):
    if data["tool_input"].get("file_path", "").startswith("/etc/"):
        return HookResult(action="deny", reason="Access denied")
    return HookResult(action="continue")


async def my_feedback_hook(event, data):
    return HookResult(action="continue")


async def mount(coordinator: ModuleCoordinator, config: dict) -> Callable | None:
    """
    Initialize and register hook handlers.

    Returns:
        Cleanup callable to unregister handlers
    """
    handlers = []

    # Register handlers for specific events
    handlers.append(
        coordinator.hooks.register("tool:pre", my_validation_hook, priority=10)
    )
    handlers.append(
        coordinator.hooks.register("tool:post", my_feedback_hook, priority=20)
    )

    # Return cleanup function
    def cleanup():
        for unregister in handlers:
            unregister()

    return cleanup
'''

SOURCES = {
    "my-module": ("tool", QUICK_START),
    "my-tool": ("tool", MY_TOOL),
    "my-provider": ("provider", MY_PROVIDER),
    "my-hook": ("hook", MY_HOOK),
}

Write = Callable[[str], Any]
Import = Callable[[str], ModuleType]


@pytest.fixture
def written(modules: Any) -> Write:
    """Writes the module of that id with the entry point its contract shows: `my-tool = "my_tool:mount"`."""

    def write(module_id: str) -> Any:
        module_type, source = SOURCES[module_id]
        package, folder = module_id.replace("-", "_"), modules.root / module_id
        module = modules.write(module_type, module_id=module_id, package=package, folder=folder, source=source)
        entry_point = f'[project.entry-points."amplifier.modules"]\n{module_id} = "{package}:mount"\n'
        (folder / "pyproject.toml").write_text(entry_point)
        return module

    return write


@pytest.fixture
def imported(written: Write) -> Import:
    """Writes the module of that id and imports its package."""
    return lambda module_id: import_module_from_path(written(module_id).file.parent)


class TestEveryModule:
    async def test_the_quick_start_module_mounts_once_with_its_config(self, modules: Any, written: Write) -> None:
        written("my-module")

        async with modules.session(modules.plan(tools=[{"module": "my-module", "config": {"a": 1}}])) as session:
            assert session.coordinator.get_mounted("tools") == ["my-module"]
            result = await session.coordinator.get("tools", "my-module").execute({})

        assert result.output == {"a": 1}

    @pytest.mark.parametrize(
        ("module_id", "options"),
        [
            ("my-module", []),
            ("my-tool", ["--type", "tool"]),
            ("my-provider", ["--type", "provider"]),
            ("my-hook", ["--type", "hook"]),
        ],
    )
    def test_the_validation_command_passes_each_documented_module(
        self, written: Write, module_id: str, options: list[str]
    ) -> None:
        folder = written(module_id).folder
        command = [sys.executable, "-m", "amplifier_core", "validate", f"./{module_id}", *options]

        run = warm_python.run(command, cwd=folder.parent, capture_output=True, text=True)

        assert (run.returncode, "PASSED" in run.stdout, "✗" in run.stdout) == (0, True, False), run.stdout + run.stderr


class TestTool:
    def test_name_description_and_execute_are_the_whole_protocol(self) -> None:
        class Smallest:
            name = "smallest"
            description = "Does nothing."

            async def execute(self, input: dict[str, Any]) -> ToolResult:
                return ToolResult()

        assert isinstance(Smallest(), Tool)
        assert not isinstance(object(), Tool)

    async def test_a_tool_with_just_name_description_and_execute_mounts_and_runs(self, modules: Any) -> None:
        smallest = modules.write("tool")

        async with modules.session(modules.plan(tools=[smallest.entry()])) as session:
            result = await session.coordinator.get("tools", smallest.name).execute({})

        assert result.output == smallest.name

    def test_a_tool_call_has_an_id_a_name_and_arguments(self) -> None:
        call = ToolCall(id="call_1", name="my_tool", arguments={"required_param": "value"})

        assert (call.id, call.name, call.arguments) == ("call_1", "my_tool", {"required_param": "value"})

    def test_a_tool_result_is_a_success_without_output_by_default(self) -> None:
        result = ToolResult()

        assert (result.success, result.output, result.error) == (True, None, None)

    async def test_a_tool_that_mounts_and_returns_itself_is_mounted_once(self, modules: Any, written: Write) -> None:
        written("my-tool")
        configuration = {"max_size": 1048576, "allowed_paths": ["projects"]}
        entry = {"module": "my-tool", "source": "git+https://github.com/org/my-tool@main", "config": configuration}

        async with modules.session(modules.plan(tools=[entry])) as session:
            tools = dict(session.coordinator.get("tools"))

        assert list(tools) == ["my-tool"]
        assert tools["my-tool"].config is configuration

    async def test_execute_reports_success_missing_input_and_its_own_failure(self, imported: Import) -> None:
        tool = imported("my-tool").MyTool(config={})

        done, missing, failed = [await tool.execute({"required_param": value}) for value in ("value", "", "  ")]

        assert (done.success, done.output) == (True, 20.0)
        assert (missing.success, missing.error) == (False, {"message": "required_param is required"})
        assert (failed.success, failed.error["type"]) == (False, "ZeroDivisionError")

    async def test_the_recommended_schema_is_read_by_the_validator(self, written: Write) -> None:
        result = await ToolValidator().validate(written("my-tool").folder)

        (schema,) = [check for check in result.checks if check.name == "tool_input_schema"]
        assert (schema.passed, schema.message) == (True, "Tool.input_schema returns dict with 3 properties")

    async def test_a_tool_registers_the_events_it_emits(self) -> None:
        coordinator = ModuleCoordinator()

        coordinator.register_contributor(
            "observability.events", "my-tool", lambda: ["my-tool:started", "my-tool:completed", "my-tool:error"]
        )

        assert await coordinator.collect_contributions("observability.events") == [
            ["my-tool:started", "my-tool:completed", "my-tool:error"]
        ]

    def test_the_standard_tool_events_have_names_in_the_kernel(self) -> None:
        assert (events.TOOL_PRE, events.TOOL_POST, events.TOOL_ERROR) == ("tool:pre", "tool:post", "tool:error")

    async def test_the_testing_example_runs(self, imported: Import) -> None:
        tool = imported("my-tool").MyTool(config={})

        result = await tool.execute({"required_param": "value"})

        assert result.success
        assert result.error is None

    async def test_a_mock_tool_counts_its_calls_and_keeps_the_last_input(self) -> None:
        mock_tool = MockTool(name="test_tool", description="Test tool", return_value="mock result")

        result = await mock_tool.execute({"required_param": "value"})

        assert (mock_tool.name, mock_tool.description, result.output) == ("test_tool", "Test tool", "mock result")
        assert mock_tool.call_count == 1
        assert mock_tool.last_input == {"required_param": "value"}


class TestProvider:
    def test_the_five_documented_members_are_the_protocol(self, imported: Import) -> None:
        assert isinstance(imported("my-provider").MyProvider("key", {}), Provider)
        assert not isinstance(MockTool(), Provider)

    async def test_a_provider_gets_its_config_and_its_cleanup_runs_at_the_end(
        self, modules: Any, written: Write
    ) -> None:
        written("my-provider")
        configuration = {"api_key": "${MY_API_KEY}", "default_model": "model-v1", "debug": True}
        entry = {"module": "my-provider", "source": "git+https://github.com/org/my-provider@main"}
        session = modules.session(modules.plan(providers=[{**entry, "config": configuration}]))

        async with session:
            provider = session.coordinator.get("providers", "my-provider")
            before = provider.client.closed

        assert provider.config is configuration
        assert (before, provider.client.closed) == (False, True)

    async def test_a_provider_without_a_key_is_left_out_and_the_session_goes_on(
        self, modules: Any, written: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("MY_API_KEY", raising=False)
        written("my-provider")
        other = modules.write("provider")

        async with modules.session(modules.plan(providers=[{"module": "my-provider"}, other.entry()])) as session:
            response = await session.execute("Hello")

        assert session.coordinator.get_mounted("providers") == [other.name]
        assert [failure["module_id"] for failure in session.status.load_failures] == ["my-provider"]
        assert response == "answer to Hello"

    async def test_a_provider_that_is_only_returned_is_registered_automatically(self, modules: Any) -> None:
        returning = modules.write("provider", mount="return thing")

        async with modules.session(modules.plan(providers=[returning.entry()])) as session:
            assert session.coordinator.get_mounted("providers") == [returning.name]

    async def test_a_provider_registers_the_events_it_emits(self) -> None:
        coordinator = ModuleCoordinator()

        coordinator.register_contributor(
            "observability.events", "my-provider", lambda: ["my-provider:rate_limit", "my-provider:retry"]
        )

        assert await coordinator.collect_contributions("observability.events") == [
            ["my-provider:rate_limit", "my-provider:retry"]
        ]

    def test_a_thinking_block_keeps_its_signature(self) -> None:
        block = ThinkingBlock(thinking="Hm.", signature="signed")

        assert ThinkingBlock.model_validate(block.model_dump()).signature == "signed"

    async def test_the_testing_example_runs(self, imported: Import) -> None:
        coordinator = create_test_coordinator()
        cleanup = await imported("my-provider").mount(coordinator, {"api_key": "test-key"})

        assert "my-provider" in coordinator.get_mounted("providers")

        if cleanup:
            await cleanup()
        assert coordinator.get("providers", "my-provider").client.closed


class TestHook:
    def test_an_async_call_with_event_and_data_is_the_protocol(self) -> None:
        class Handler:
            async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
                return HookResult(action="continue")

        assert isinstance(Handler(), HookHandler)
        assert not isinstance(object(), HookHandler)

    async def test_continue_lets_the_operation_proceed(self) -> None:
        assert (await _emitted(HookResult(action="continue"))).action == "continue"

    async def test_deny_blocks_the_operation_with_its_reason(self) -> None:
        verdict = await _emitted(HookResult(action="deny", reason="Access denied"))

        assert (verdict.action, verdict.reason) == ("deny", "Access denied")

    async def test_modify_transforms_the_data_that_the_emitter_gets_back(self) -> None:
        verdict = await _emitted(HookResult(action="modify", data={"tool_name": "Write", "tool_input": {"safe": True}}))

        assert verdict.action == "continue"
        assert verdict.data == {"tool_name": "Write", "tool_input": {"safe": True}}

    async def test_inject_context_adds_to_the_conversation_and_tells_the_user(self) -> None:
        coordinator = create_test_coordinator()
        verdict = await _emitted(
            HookResult(
                action="inject_context",
                context_injection="Found 3 linting errors...",
                user_message="Linting issues detected",
            )
        )

        processed = await coordinator.process_hook_result(verdict, "tool:post", "linter")

        (message,) = coordinator.get("context").messages
        assert (message["role"], message["content"]) == ("system", "Found 3 linting errors...")
        coordinator.display_system.show_message.assert_called_once_with(
            "Linting issues detected", "info", "hook:linter"
        )
        assert processed.action == "continue"

    @pytest.mark.parametrize(("decision", "action"), [("Allow", "continue"), ("Deny", "deny")])
    async def test_ask_user_leaves_the_decision_to_the_user(self, decision: str, action: str) -> None:
        coordinator = TestCoordinator()
        coordinator.approval_system.request_approval.return_value = decision
        verdict = await _emitted(
            HookResult(action="ask_user", approval_prompt="Allow write to production file?", approval_default="deny")
        )

        processed = await coordinator.process_hook_result(verdict, "tool:pre", "guard")

        coordinator.approval_system.request_approval.assert_awaited_once_with(
            "Allow write to production file?", ["Allow", "Deny"], 300.0, "deny"
        )
        assert processed.action == action

    async def test_the_mounted_handlers_answer_until_the_session_ends(self, modules: Any, written: Write) -> None:
        written("my-hook")
        configuration = {"enabled_events": ["tool:pre", "tool:post"], "log_level": "info"}
        entry = {"module": "my-hook", "source": "git+https://github.com/org/my-hook@main", "config": configuration}
        session = modules.session(modules.plan(hooks=[entry]))
        writing = {"tool_name": "Write", "tool_input": {"file_path": "/etc/passwd"}}

        async with session:
            during = await session.coordinator.hooks.emit("tool:pre", writing)
        after = await session.coordinator.hooks.emit("tool:pre", writing)

        assert session.status.load_failures == []
        assert (during.action, during.reason, after.action) == ("deny", "Access denied", "continue")

    async def test_a_handler_is_registered_by_keyword_and_unregistered_by_the_handle(self) -> None:
        coordinator = ModuleCoordinator()
        recorder = EventRecorder()
        my_handler = recorder.record

        registry: HookRegistry = coordinator.hooks
        unregister = registry.register(event="tool:post", handler=my_handler, priority=10, name="my_handler")
        registered = registry.list_handlers("tool:post")
        unregister()

        assert (registered, registry.list_handlers("tool:post")) == ({"tool:post": ["my_handler"]}, {"tool:post": []})

    async def test_lower_priorities_are_asked_earlier(self) -> None:
        hooks, asked = HookRegistry(), list[str]()
        for name, priority in (("late", 90), ("early", 10), ("middle", 50)):
            hooks.register("tool:pre", _noting(asked, name), priority=priority)

        await hooks.emit("tool:pre", {})

        assert asked == ["early", "middle", "late"]

    def test_the_common_events_have_names_in_the_kernel(self) -> None:
        assert {
            "session:start", "session:end", "prompt:submit", "tool:pre", "tool:post", "tool:error", "provider:request",
            "provider:response",
        } <= set(events.ALL_EVENTS)  # fmt: skip

    async def test_the_kernels_own_events_carry_the_documented_data(
        self, modules: Any, listen: Callable[..., list[tuple[str, dict[str, Any]]]]
    ) -> None:
        session: AmplifierSession = modules.session()
        heard = listen(session.coordinator, "session:start", "session:end")

        async with session:
            await session.execute("Hello")

        (_, start), (_, end) = heard
        assert (start["session_id"], start["config"]) == (session.session_id, session.config)
        assert (end["session_id"], end["stats"]["status"]) == (session.session_id, "completed")

    async def test_a_hook_registers_the_events_it_emits(self) -> None:
        coordinator = ModuleCoordinator()

        coordinator.register_contributor(
            "observability.events", "my-hook", lambda: ["my-hook:validation_failed", "my-hook:approved"]
        )

        assert await coordinator.collect_contributions("observability.events") == [
            ["my-hook:validation_failed", "my-hook:approved"]
        ]

    async def test_the_example_that_tests_a_handler_directly_runs(self, imported: Import) -> None:
        my_validation_hook = imported("my-hook").my_validation_hook

        result = await my_validation_hook(
            "tool:pre", {"tool_name": "Write", "tool_input": {"file_path": "/etc/passwd"}}
        )

        assert result.action == "deny"
        assert "denied" in result.reason.lower()

    async def test_the_example_that_tests_the_registration_runs(self, imported: Import) -> None:
        coordinator = TestCoordinator()
        cleanup = await imported("my-hook").mount(coordinator, {})

        assert len(coordinator.get_mounted("hooks")) == 2

        cleanup()
        assert coordinator.get_mounted("hooks") == []

    async def test_the_event_recorder_keeps_names_and_data(self) -> None:
        recorder = EventRecorder()

        await recorder.record("tool:pre", {"tool_name": "Write"})

        recorded = recorder.get_events()
        assert len(recorded) == 1
        assert recorded[0][0] == "tool:pre"
        assert recorded[0][1] == {"tool_name": "Write"}


async def _emitted(answer: HookResult) -> HookResult:
    """Return what an emitter hears of one handler's answer."""
    hooks = HookRegistry()

    async def handler(event: str, data: dict[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        return answer

    hooks.register("tool:pre", handler, name="handler")
    return await hooks.emit("tool:pre", {"tool_name": "Write", "tool_input": {"safe": False}})


def _noting(asked: list[str], name: str) -> Callable[[str, dict[str, Any]], HookResult]:
    def handler(event: str, data: dict[str, Any]) -> HookResult:
        asked.append(name)
        return HookResult(action="continue")

    return handler
