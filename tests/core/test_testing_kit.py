"""What module authors test with."""

from typing import Any
from unittest.mock import AsyncMock

import pytest

import amplifier_core
from amplifier_core import testing
from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.hooks import HookRegistry
from amplifier_core.llm_errors import RateLimitError
from amplifier_core.message_models import ChatRequest, ChatResponse, Message, TextBlock, ToolCall
from amplifier_core.models import HookResult, ProviderInfo, ToolResult
from amplifier_core.testing import (
    EventRecorder,
    MockContextManager,
    MockCoordinator,
    MockProvider,
    MockTool,
    ScriptedOrchestrator,
    TestCoordinator,
    create_test_coordinator,
    wait_for,
)

HELLO = {"role": "user", "content": "Hello"}


def request(text: str = "Hello") -> ChatRequest:
    return ChatRequest(messages=[Message(role="user", content=text)])


@pytest.mark.parametrize("name", testing.__all__)
def test_the_kit_is_reachable_from_the_top_level(name: str) -> None:
    assert getattr(amplifier_core, name) is getattr(testing, name)


def test_the_coordinator_is_a_real_one_of_a_session_that_is_not_there() -> None:
    coordinator = MockCoordinator()

    assert isinstance(coordinator, ModuleCoordinator)
    assert (coordinator.session_id, coordinator.parent_id) == ("test-session", None)
    assert coordinator.config == {"session": {"orchestrator": "test-orchestrator", "context": "test-context"}}
    assert coordinator.session.session_id == "test-session"


def test_no_two_coordinators_share_anything_that_changes() -> None:
    one, other = MockCoordinator(), MockCoordinator()
    one.config["session"]["raw"] = True
    one.mount_points["tools"]["x"] = object()

    assert other.config == {"session": {"orchestrator": "test-orchestrator", "context": "test-context"}}
    assert other.mount_points["tools"] == {}


def test_the_older_name_of_the_coordinator_is_not_collected_as_a_test() -> None:
    assert TestCoordinator is MockCoordinator
    assert TestCoordinator.__test__ is False


async def test_every_mount_is_recorded_as_it_was_asked_for() -> None:
    coordinator, tool, context = MockCoordinator(), MockTool("echo"), MockContextManager()

    await coordinator.mount("tools", tool)
    await coordinator.mount("tools", tool, name="other")
    await coordinator.mount("session", context, name="context")
    await coordinator.unmount("tools", "echo")
    await coordinator.unmount("context")

    assert coordinator.mount_history == [
        {"mount_point": "tools", "module": tool, "name": None},
        {"mount_point": "tools", "module": tool, "name": "other"},
        {"mount_point": "session", "module": context, "name": "context"},
    ]
    assert coordinator.unmount_history == [
        {"mount_point": "tools", "name": "echo"},
        {"mount_point": "context", "name": None},
    ]
    assert coordinator.get_mounted("tools") == ["other"]


async def test_mounts_that_fail_are_recorded_too() -> None:
    coordinator = MockCoordinator()

    with pytest.raises(ValueError, match="Unknown mount point: nowhere"):
        await coordinator.mount("nowhere", object())
    with pytest.raises(ValueError, match="Name required to unmount from tools"):
        await coordinator.unmount("tools")

    assert [entry["mount_point"] for entry in coordinator.mount_history] == ["nowhere"]
    assert coordinator.unmount_history == [{"mount_point": "tools", "name": None}]


def test_mounted_names_are_listed_per_mount_point() -> None:
    coordinator = create_test_coordinator()
    coordinator.hooks.register("tool:pre", EventRecorder().record, name="recorder")

    assert coordinator.get_mounted("tools") == ["echo", "fail"]
    assert coordinator.get_mounted("providers") == []
    assert coordinator.get_mounted("context") == ["context"]
    assert coordinator.get_mounted("orchestrator") == []
    assert coordinator.get_mounted("hooks") == ["recorder"]


async def test_approvals_are_granted_and_messages_swallowed() -> None:
    coordinator = MockCoordinator()

    asked = await coordinator.process_hook_result(HookResult(action="ask_user", approval_prompt="Sure?"), "tool:pre")
    await coordinator.process_hook_result(HookResult(user_message="look"), "tool:post")

    assert asked.action == "continue"
    assert isinstance(coordinator.approval_system, AsyncMock)
    assert coordinator.approval_system.request_approval.await_count == 1
    assert isinstance(coordinator.display_system, AsyncMock)
    assert coordinator.display_system.show_message.call_count == 1


async def test_the_coordinator_can_be_subclassed_with_another_constructor() -> None:
    class Counting(MockCoordinator):
        def __init__(self, limit: int) -> None:
            super().__init__()
            self.limit = limit

    coordinator = Counting(3)
    await coordinator.mount("tools", MockTool("echo"))

    assert (coordinator.limit, coordinator.get_mounted("tools")) == (3, ["echo"])


async def test_a_tool_has_defaults_for_everything() -> None:
    tool = MockTool()

    result = await tool.execute({"x": 1})

    assert (tool.name, tool.description, tool.output) == ("mock_tool", "Mock tool: mock_tool", "Success")
    assert tool.input_schema == {"type": "object", "properties": {}}
    assert result == ToolResult(success=True, output="Success")


async def test_a_tool_counts_its_calls_and_keeps_the_last_input() -> None:
    tool = MockTool("test_tool", "out")
    before = (tool.call_count, tool.last_input)

    await tool.execute({"a": 1})
    await tool.execute(input={"b": 2})

    assert before == (0, None)
    assert (tool.call_count, tool.last_input) == (2, {"b": 2})
    assert isinstance(tool.execute, AsyncMock)
    assert tool.execute.await_count == 2


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"return_value": "mock result"}, "mock result"),
        ({"output": "out"}, "out"),
        ({"output": None}, None),
        ({"output": "out", "return_value": None}, None),
        ({"return_value": {"a": [1]}}, {"a": [1]}),
    ],
)
async def test_the_output_of_a_tool_has_two_names(arguments: dict[str, Any], output: Any) -> None:
    tool = MockTool(name="test_tool", description="Test tool", **arguments)

    assert tool.description == "Test tool"
    assert (await tool.execute({})).output == output


async def test_a_tool_can_be_given_its_whole_result() -> None:
    refusal = ToolResult(success=False, error={"message": "no"})

    assert await MockTool(return_value=refusal).execute({}) is refusal


async def test_the_output_of_a_tool_can_be_changed_between_calls() -> None:
    tool = MockTool()
    tool.output = "later"

    assert (await tool.execute({})).output == "later"


async def test_a_provider_answers_from_its_script_then_with_a_stock_phrase() -> None:
    whole = ChatResponse(content=[TextBlock(text="whole")])
    error = RateLimitError("slow down")
    provider = MockProvider(["two words", whole, error])

    text = await provider.complete(request(), model="any")
    assert [block.model_dump(exclude_none=True) for block in text.content] == [{"type": "text", "text": "two words"}]
    assert text.usage is not None
    assert text.usage.total_tokens == text.usage.input_tokens + text.usage.output_tokens
    assert await provider.complete(request()) is whole
    with pytest.raises(RateLimitError) as raised:
        await provider.complete(request())
    assert raised.value is error
    assert (await provider.complete(request())).content == [TextBlock(text="Mock response")]


async def test_a_provider_keeps_the_requests_it_has_seen() -> None:
    provider, first, second = MockProvider([ValueError("no")]), request("one"), request("two")

    with pytest.raises(ValueError, match="no"):
        await provider.complete(first)
    await provider.complete(second)

    assert provider.call_count == 2
    assert all(seen is sent for seen, sent in zip(provider.requests, [first, second], strict=True))


async def test_a_provider_describes_itself_and_reads_tool_calls() -> None:
    provider, call = MockProvider(), ToolCall(id="1", name="echo", arguments={})

    info = provider.get_info()

    assert (provider.name, info.id, isinstance(info, ProviderInfo)) == ("mock", "mock", True)
    assert await provider.list_models() == []
    assert provider.parse_tool_calls(ChatResponse(content=[], tool_calls=[call])) == [call]
    assert provider.parse_tool_calls(ChatResponse(content=[])) == []


async def test_a_context_keeps_messages_and_its_methods_are_mocks() -> None:
    context = MockContextManager()

    await context.add_message(HELLO)

    assert context.messages == [HELLO]
    assert await context.get_messages() is context.messages
    assert await context.get_messages_for_request(token_budget=10, provider=MockProvider()) == [HELLO]
    context.add_message.assert_awaited_once_with(HELLO)
    assert all(
        isinstance(method, AsyncMock)
        for method in (context.get_messages, context.get_messages_for_request, context.set_messages, context.clear)
    )


async def test_the_messages_for_a_request_are_a_copy() -> None:
    context = MockContextManager([HELLO])

    (await context.get_messages_for_request()).clear()

    assert context.messages == [HELLO]


async def test_a_context_can_be_set_and_cleared() -> None:
    given = [HELLO]
    context = MockContextManager(given)

    await context.set_messages([HELLO, HELLO])
    assert len(context.messages) == 2
    await context.set_messages(context.messages)
    assert len(context.messages) == 2
    await context.clear()

    assert (context.messages, given) == ([], [HELLO])


async def test_a_recorder_keeps_events_with_a_copy_of_their_data() -> None:
    recorder, data = EventRecorder(), {"tool_name": "Write"}

    results = [await recorder.record("tool:pre", data), await recorder.emit("tool:post", {})]
    data["tool_name"] = "changed"

    assert recorder.events == [("tool:pre", {"tool_name": "Write"}), ("tool:post", {})]
    assert [(result.action, result.data) for result in results] == [("continue", None)] * 2


async def test_recorded_events_can_be_filtered_and_forgotten() -> None:
    recorder = EventRecorder()
    for event in ("a", "b", "a"):
        await recorder.emit(event, None)

    recorder.get_events().clear()
    assert recorder.get_events("a") == [("a", None), ("a", None)]
    assert recorder.get_events("c") == []
    assert len(recorder.get_events()) == 3
    recorder.clear()
    assert recorder.events == []


async def test_a_recorder_is_a_handler_for_a_real_registry() -> None:
    recorder, hooks = EventRecorder(), HookRegistry()
    hooks.register("tool:pre", recorder.record)

    await hooks.emit("tool:pre", {"tool_name": "Write"})

    ((event, data),) = recorder.get_events()
    assert (event, data["tool_name"]) == ("tool:pre", "Write")


async def test_a_scripted_orchestrator_answers_turn_by_turn() -> None:
    orchestrator, context, hooks = ScriptedOrchestrator(responses=["Response 1"]), MockContextManager(), EventRecorder()
    arguments: dict[str, Any] = {"context": context, "providers": {}, "tools": {}, "hooks": hooks}

    first = await orchestrator.execute("One", **arguments)
    second = await orchestrator.execute(prompt="Two", **arguments, coordinator=MockCoordinator())

    assert (first, second, orchestrator.call_count) == ("Response 1", "DONE", 2)
    assert context.messages == [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Response 1"},
        {"role": "user", "content": "Two"},
        {"role": "assistant", "content": "DONE"},
    ]
    assert hooks.events == [
        ("session:start", {"prompt": "One"}),
        ("session:end", {"response": "Response 1"}),
        ("session:start", {"prompt": "Two"}),
        ("session:end", {"response": "DONE"}),
    ]


async def test_a_test_coordinator_comes_with_tools_and_a_context() -> None:
    coordinator = create_test_coordinator()

    outputs = {name: (await tool.execute({})).output for name, tool in coordinator.get("tools").items()}

    assert outputs == {"echo": "Echo response", "fail": None}
    assert isinstance(coordinator.get("context"), MockContextManager)
    assert coordinator.mount_history == []


async def test_waiting_ends_when_the_condition_holds_or_the_time_is_up() -> None:
    asked: list[bool] = []

    def third_time() -> bool:
        asked.append(True)
        return len(asked) == 3

    assert await wait_for(third_time, timeout=30)
    assert len(asked) == 3
    assert not await wait_for(lambda: False, timeout=0.02)
    assert await wait_for(lambda: True, timeout=0)
