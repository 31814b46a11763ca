"""What module authors test with: a coordinator that remembers, and scripted stand-ins for the other modules.

Mocks are made when they are first asked for: making one takes longer than most tests.
"""

import asyncio
import copy
from collections.abc import Callable, Iterable
from functools import cached_property
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

from .coordinator import ModuleCoordinator
from .message_models import ChatRequest, ChatResponse, TextBlock, ToolCall, Usage
from .models import HookResult, ModelInfo, ProviderInfo, ToolResult

__all__ = [
    "EventRecorder",
    "MockContextManager",
    "MockCoordinator",
    "MockProvider",
    "MockTool",
    "ScriptedOrchestrator",
    "TestCoordinator",
    "create_test_coordinator",
    "wait_for",
]

_POLL_INTERVAL_S = 0.01
_NOT_GIVEN: Any = object()


class MockCoordinator(ModuleCoordinator):
    """A real coordinator without a session, which records every mount and unmount, also those that fail.

    Approvals are granted (`Allow`), messages are swallowed; both systems are mocks.
    """

    __test__ = False  # its other name, TestCoordinator, looks like a test class

    def __init__(self) -> None:
        session = SimpleNamespace(
            session_id="test-session",
            parent_id=None,
            config={"session": {"orchestrator": "test-orchestrator", "context": "test-context"}},
        )
        super().__init__(session=session)
        del self.approval_system, self.display_system  # which makes room for the mocks
        self.mount_history: list[dict[str, Any]] = []
        self.unmount_history: list[dict[str, Any]] = []

    def _approval_mock(self) -> AsyncMock:
        return AsyncMock(request_approval=AsyncMock(return_value="Allow"))

    def _display_mock(self) -> AsyncMock:
        return AsyncMock(show_message=Mock(return_value=None))

    approval_system: Any = cached_property(_approval_mock)
    display_system: Any = cached_property(_display_mock)

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        self.mount_history.append({"mount_point": mount_point, "module": module, "name": name})
        await super().mount(mount_point, module, name)

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        self.unmount_history.append({"mount_point": mount_point, "name": name})
        await super().unmount(mount_point, name)


TestCoordinator = MockCoordinator


class MockTool:
    """A tool that always succeeds with the same output and counts its calls.

    `return_value` is another word for `output`; a `ToolResult` given there is returned as it is.
    """

    def __init__(
        self,
        name: str = "mock_tool",
        output: Any = "Success",
        *,
        description: str | None = None,
        return_value: Any = _NOT_GIVEN,
    ) -> None:
        self.name = name
        self.description = f"Mock tool: {name}" if description is None else description
        self.output = output if return_value is _NOT_GIVEN else return_value
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}}
        self.call_count = 0
        self.last_input: Any = None

    @cached_property
    def execute(self) -> AsyncMock:
        return AsyncMock(side_effect=self._execute)

    async def _execute(self, input: dict[str, Any]) -> ToolResult:
        self.call_count += 1
        self.last_input = input
        return self.output if isinstance(self.output, ToolResult) else ToolResult(success=True, output=self.output)


class MockProvider:
    """A provider that answers from a script: text, whole responses, or exceptions to raise.

    When the script is over it answers `Mock response`. `requests` holds every request seen.
    """

    name = "mock"

    def __init__(self, responses: Iterable[str | ChatResponse | BaseException] = ()) -> None:
        self._responses = iter(list(responses))
        self.requests: list[ChatRequest] = []
        self.call_count = 0

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="mock", display_name="Mock")

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        self.call_count += 1
        self.requests.append(request)
        response = next(self._responses, "Mock response")
        if isinstance(response, BaseException):
            raise response
        return _text_response(response) if isinstance(response, str) else response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


class MockContextManager:
    """A context that keeps every message in `messages`; its methods are mocks that also do the work."""

    def __init__(self, messages: list[dict[str, Any]] | None = None) -> None:
        self.messages = list(messages or [])

    @cached_property
    def add_message(self) -> AsyncMock:
        return AsyncMock(side_effect=self._add_message)

    @cached_property
    def get_messages(self) -> AsyncMock:
        return AsyncMock(side_effect=self._get_messages)

    @cached_property
    def get_messages_for_request(self) -> AsyncMock:
        return AsyncMock(side_effect=self._get_messages_for_request)

    @cached_property
    def set_messages(self) -> AsyncMock:
        return AsyncMock(side_effect=self._set_messages)

    @cached_property
    def clear(self) -> AsyncMock:
        return AsyncMock(side_effect=self._clear)

    async def _add_message(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    async def _get_messages(self) -> list[dict[str, Any]]:
        return self.messages

    async def _get_messages_for_request(
        self, token_budget: int | None = None, provider: Any = None
    ) -> list[dict[str, Any]]:
        return list(self.messages)

    async def _set_messages(self, messages: list[dict[str, Any]]) -> None:
        self.messages[:] = list(messages)

    async def _clear(self) -> None:
        self.messages.clear()


class EventRecorder:
    """Keeps the events it is given; stands in for a hook registry (`emit`) or a handler (`record`)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def emit(self, event: str, data: Any) -> HookResult:
        return await self.record(event, data)

    async def record(self, event: str, data: Any) -> HookResult:
        self.events.append((event, copy.copy(data)))
        return HookResult(action="continue")

    def get_events(self, event_type: str | None = None) -> list[tuple[str, Any]]:
        """Return the events seen, all of them or those of one name."""
        return [entry for entry in self.events if event_type is None or entry[0] == event_type]

    def clear(self) -> None:
        self.events.clear()


class ScriptedOrchestrator:
    """An orchestrator that asks no model: each turn is answered with the next response, then with `DONE`."""

    def __init__(self, responses: list[str]) -> None:
        self.responses = list(responses)
        self.call_count = 0

    async def execute(
        self, prompt: str, context: Any, providers: dict[str, Any], tools: dict[str, Any], hooks: Any, **kwargs: Any
    ) -> str:
        response = self.responses[self.call_count] if self.call_count < len(self.responses) else "DONE"
        self.call_count += 1
        await hooks.emit("session:start", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        await context.add_message({"role": "assistant", "content": response})
        await hooks.emit("session:end", {"response": response})
        return response


def create_test_coordinator() -> MockCoordinator:
    """Return a coordinator with the tools `echo` and `fail` and a context, nothing of it in its history."""
    coordinator = MockCoordinator()
    for tool in (MockTool("echo", "Echo response"), MockTool("fail", None)):
        coordinator.mount_points["tools"][tool.name] = tool
    coordinator.mount_points["context"] = MockContextManager()
    return coordinator


async def wait_for(condition: Callable[[], bool], timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - the ecosystem's name
    """Wait until `condition()` holds; False when it does not within `timeout` seconds."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not condition():
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL_INTERVAL_S)
    return True


def _text_response(text: str) -> ChatResponse:
    output_tokens = len(text.split())
    usage = Usage(input_tokens=10, output_tokens=output_tokens, total_tokens=10 + output_tokens)
    return ChatResponse(content=[TextBlock(text=text)], usage=usage, finish_reason="stop")
