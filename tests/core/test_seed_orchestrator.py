"""The snippets of the published orchestrator contract work as they are written there."""

import sys
from types import ModuleType
from typing import Any

import pytest
import warm_python

from amplifier_core import (
    ApprovalRequest,
    ApprovalResponse,
    ChatRequest,
    ChatResponse,
    HookRegistry,
    HookResult,
    ModuleCoordinator,
    Orchestrator,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    ToolResult,
)
from amplifier_core.testing import (
    EventRecorder,
    MockContextManager,
    MockProvider,
    MockTool,
    ScriptedOrchestrator,
    TestCoordinator,
)
from amplifier_core.validation.base import import_module_from_path

MY_ORCHESTRATOR = '''
from collections.abc import Callable

from amplifier_core import ApprovalRequest, ChatRequest, ModuleCoordinator, Orchestrator, TextBlock, ToolResult


class MyOrchestrator:
    def __init__(self, config):
        self.config = config

    async def execute(self, prompt, context, providers, tools, hooks):
        config = self.config
        model_name = config.get("model")

        # Get default or configured provider
        provider_name = config.get("default_provider", list(providers.keys())[0])
        provider = providers[provider_name]

        # Add user message
        await context.add_message({"role": "user", "content": prompt})

        while True:
            # Get messages for LLM request (context handles compaction internally)
            messages = await context.get_messages_for_request()
            request = ChatRequest(messages=messages)

            # Before LLM call
            await hooks.emit("provider:request", {
                "provider": provider_name,
                "messages": messages,
                "model": model_name
            })

            response = await provider.complete(request)

            # After LLM call
            await hooks.emit("provider:response", {
                "provider": provider_name,
                "response": response,
                "usage": response.usage
            })

            # Add assistant response
            await context.add_message({"role": "assistant", "content": response.content})

            tool_calls = provider.parse_tool_calls(response)
            if not tool_calls:
                return "".join(block.text for block in response.content if isinstance(block, TextBlock))

            for tool_call in tool_calls:
                result = await self.run_tool(tool_call, tools[tool_call.name], context, hooks)

                # Add tool result
                await context.add_message({
                    "role": "tool",
                    "tool_call_id": tool_call.id,
                    "content": result.output
                })

    async def run_tool(self, tool_call, tool, context, hooks):
        async def request_approval(pre_result):
            request = ApprovalRequest(tool_name=tool_call.name, action=pre_result.approval_prompt, risk_level="high")
            return (await self.config["approval_provider"].request_approval(request)).approved

        data = {
            "tool_name": tool_call.name,
            "tool_input": tool_call.input
        }

        # Before tool execution
        pre_result = await hooks.emit("tool:pre", data)

        if pre_result.action == "deny":
            # Don't execute tool
            return ToolResult(is_error=True, output=pre_result.reason)

        if pre_result.data:
            # Use modified data
            data = pre_result.data

        if pre_result.action == "inject_context":
            # Add feedback to context
            await context.add_message({
                "role": pre_result.context_injection_role,
                "content": pre_result.context_injection
            })

        if pre_result.action == "ask_user":
            # Request approval (requires approval provider)
            approved = await request_approval(pre_result)
            if not approved:
                return ToolResult(is_error=True, output="User denied")

        result = await tool.execute(data["tool_input"])

        # After tool execution
        await hooks.emit("tool:post", {
            "tool_name": tool_call.name,
            "tool_input": tool_call.input,
            "tool_result": result
        })
        return result


async def mount(coordinator: ModuleCoordinator, config: dict) -> Orchestrator | Callable | None:
    """
    Initialize and return orchestrator instance.

    Returns:
        - Orchestrator instance
        - Cleanup callable
        - None for graceful degradation
    """
    orchestrator = MyOrchestrator(config=config)
    await coordinator.mount("session", orchestrator, name="orchestrator")
    return orchestrator
'''

PYPROJECT = """
[project.entry-points."amplifier.modules"]
my-orchestrator = "my_orchestrator:mount"
"""

READ = ToolCall(id="call_123", name="test_tool", arguments={"path": "file.txt"})
WANTS_A_TOOL = ChatResponse(
    content=[ToolCallBlock(id=READ.id, name=READ.name, input=READ.arguments)], tool_calls=[READ]
)


@pytest.fixture
def module(modules: Any) -> Any:
    folder = modules.root / "my-orchestrator"
    written = modules.write(
        "orchestrator", module_id=folder.name, package="my_orchestrator", folder=folder, source=MY_ORCHESTRATOR
    )
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return written


@pytest.fixture
def code(module: Any) -> ModuleType:
    return import_module_from_path(module.file.parent)


class Turn:
    """One turn with a tool call, on the parts of the test kit."""

    def __init__(self) -> None:
        self.context = MockContextManager()
        self.provider = MockProvider([WANTS_A_TOOL, "The file is empty."])
        self.tool = MockTool(name="test_tool", return_value="File contents...")
        self.hooks = HookRegistry()

    async def run(self, orchestrator: Any) -> Any:
        return await orchestrator.execute(
            prompt="Read file.txt",
            context=self.context,
            providers={"test": self.provider},
            tools={"test_tool": self.tool},
            hooks=self.hooks,
        )

    def answer_tool_pre(self, **answer: Any) -> None:
        self.hooks.register("tool:pre", lambda event, data: HookResult(**answer), name="answering")

    @property
    def tool_message(self) -> dict[str, Any]:
        (message,) = (message for message in self.context.messages if message["role"] == "tool")
        return message


@pytest.fixture
def turn() -> Turn:
    return Turn()


class Approver:
    def __init__(self, *, approves: bool) -> None:
        self.approves = approves
        self.asked: list[str] = []

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        self.asked.append(request.action)
        return ApprovalResponse(approved=self.approves)


def test_execute_with_the_five_parameters_is_the_protocol(code: ModuleType) -> None:
    assert isinstance(code.MyOrchestrator(config={}), Orchestrator)
    assert not isinstance(object(), Orchestrator)


async def test_an_orchestrator_with_exactly_five_parameters_runs_in_a_session(modules: Any, module: Any) -> None:
    plan = modules.plan()
    plan["session"]["orchestrator"] = "my-orchestrator"
    plan["orchestrator"] = {"config": {"model": "model-v1"}}

    async with modules.session(plan) as session:
        answer = await session.execute("Hello")
        mounted = session.coordinator.get("session", "orchestrator")

    assert answer == ""
    assert mounted is session.coordinator.get("orchestrator")
    assert mounted.config == {"model": "model-v1"}


async def test_the_session_spelling_mounts_at_the_orchestrators_place(code: ModuleType) -> None:
    coordinator = TestCoordinator()

    orchestrator = await code.mount(coordinator, {})

    assert coordinator.get("orchestrator") is orchestrator
    assert coordinator.get_mounted("orchestrator") == ["orchestrator"]


def test_the_validation_command_passes(module: Any) -> None:
    command = [sys.executable, "-m", "amplifier_core", "validate", str(module.folder), "--type", "orchestrator"]

    run = warm_python.run(command, capture_output=True, text=True)

    assert (run.returncode, "PASSED" in run.stdout) == (0, True), run.stdout + run.stderr


async def test_a_turn_emits_the_documented_events_in_the_documented_order(code: ModuleType, turn: Turn) -> None:
    recorder = EventRecorder()
    for event in ("provider:request", "provider:response", "tool:pre", "tool:post"):
        turn.hooks.register(event, recorder.record)

    answer = await turn.run(code.MyOrchestrator(config={}))

    assert [event for event, _ in recorder.get_events()] == [
        "provider:request", "provider:response", "tool:pre", "tool:post", "provider:request", "provider:response",
    ]  # fmt: skip
    assert answer == "The file is empty."
    ((_, post),) = recorder.get_events("tool:post")
    assert post["tool_name"] == "test_tool"
    assert post["tool_input"] == {"path": "file.txt"}
    assert post["tool_result"] == {"success": True, "output": "File contents...", "error": None}


async def test_a_turn_keeps_the_conversation_in_order(code: ModuleType, turn: Turn) -> None:
    await turn.run(code.MyOrchestrator(config={}))

    assert [message["role"] for message in turn.context.messages] == ["user", "assistant", "tool", "assistant"]
    assert turn.tool_message == {"role": "tool", "tool_call_id": "call_123", "content": "File contents..."}
    assert [message.role for message in turn.provider.requests[1].messages] == ["user", "assistant", "tool"]


async def test_a_denied_tool_does_not_run_and_the_model_reads_the_reason(code: ModuleType, turn: Turn) -> None:
    turn.answer_tool_pre(action="deny", reason="read-only")

    await turn.run(code.MyOrchestrator(config={}))

    assert turn.tool.call_count == 0
    assert turn.tool_message["content"] == "read-only"


async def test_a_tool_runs_with_the_input_a_hook_made(code: ModuleType, turn: Turn) -> None:
    changed = {"tool_name": "test_tool", "tool_input": {"path": "other.txt"}}
    turn.answer_tool_pre(action="modify", data=changed)

    await turn.run(code.MyOrchestrator(config={}))

    assert turn.tool.last_input == {"path": "other.txt"}


async def test_feedback_of_a_hook_is_added_to_the_context(code: ModuleType, turn: Turn) -> None:
    turn.answer_tool_pre(action="inject_context", context_injection="Mind the size.", context_injection_role="user")

    await turn.run(code.MyOrchestrator(config={}))

    assert {"role": "user", "content": "Mind the size."} in turn.context.messages
    assert turn.tool.call_count == 1


@pytest.mark.parametrize(("approves", "content"), [(True, "File contents..."), (False, "User denied")])
async def test_a_tool_runs_only_with_the_users_approval(
    code: ModuleType, turn: Turn, approves: bool, content: str
) -> None:
    approver = Approver(approves=approves)
    turn.answer_tool_pre(action="ask_user", approval_prompt="Read file.txt?")

    await turn.run(code.MyOrchestrator(config={"approval_provider": approver}))

    assert approver.asked == ["Read file.txt?"]
    assert turn.tool.call_count == int(approves)
    assert turn.tool_message["content"] == content


def test_a_result_made_with_is_error_is_a_failure() -> None:
    result = ToolResult(is_error=True, output="User denied")

    assert (result.success, result.output) == (False, "User denied")
    assert "is_error" not in result.model_dump()


@pytest.mark.parametrize(("config", "chosen"), [({}, "first"), ({"default_provider": "second"}, "second")])
async def test_the_first_provider_is_used_unless_another_is_configured(
    code: ModuleType, config: dict[str, Any], chosen: str
) -> None:
    providers = {"first": MockProvider(["first"]), "second": MockProvider(["second"])}

    answer = await code.MyOrchestrator(config).execute("Hello", MockContextManager(), providers, {}, HookRegistry())

    assert answer == chosen


async def test_an_orchestrator_registers_the_events_it_emits() -> None:
    coordinator = ModuleCoordinator()

    coordinator.register_contributor(
        "observability.events",
        "my-orchestrator",
        lambda: ["my-orchestrator:loop_started", "my-orchestrator:loop_iteration", "my-orchestrator:loop_completed"],
    )

    assert await coordinator.collect_contributions("observability.events") == [
        ["my-orchestrator:loop_started", "my-orchestrator:loop_iteration", "my-orchestrator:loop_completed"]
    ]


async def test_the_testing_example_runs(code: ModuleType) -> None:
    orchestrator = code.MyOrchestrator(config={})
    context = MockContextManager()
    providers = {"test": MockProvider()}
    tools = {"test_tool": MockTool()}
    hooks = HookRegistry()

    result = await orchestrator.execute(
        prompt="Test prompt", context=context, providers=providers, tools=tools, hooks=hooks
    )

    assert isinstance(result, str)
    assert len(context.messages) > 0


async def test_a_scripted_orchestrator_answers_in_turn() -> None:
    orchestrator = ScriptedOrchestrator(responses=["Response 1", "Response 2"])
    parts: dict[str, Any] = {
        "context": MockContextManager(),
        "providers": {"test": MockProvider()},
        "tools": {},
        "hooks": EventRecorder(),
    }

    result = await orchestrator.execute(prompt="Test", **parts)

    assert result == "Response 1"
    assert await orchestrator.execute(prompt="Test", **parts) == "Response 2"


async def test_the_test_kit_runs_in_a_session_as_its_parts(modules: Any) -> None:
    session = modules.session()
    async with session:
        await session.coordinator.mount("session", ScriptedOrchestrator(["Response 1"]), name="orchestrator")
        await session.coordinator.mount("session", MockContextManager(), name="context")

        answer = await session.execute("Test")
        messages = await session.coordinator.get("context").get_messages()

    assert answer == "Response 1"
    assert [message["content"] for message in messages] == ["Test", "Response 1"]


async def test_a_mock_provider_answers_with_text_and_usage() -> None:
    response = await MockProvider(["Hello"]).complete(ChatRequest(messages=[]))

    assert response.content == [TextBlock(text="Hello")]
    assert response.usage is not None
