"""Every contract a module can fulfil, as protocols: a module needs the members, not a base class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import Field, field_validator

from .events import EventData
from .message_models import ChatRequest, ChatResponse, KernelModel, ToolCall
from .models import HookResult, ModelInfo, ProviderInfo, ToolResult

if TYPE_CHECKING:
    from .hooks import HookRegistry

__all__ = [
    "ApprovalProvider",
    "ApprovalRequest",
    "ApprovalResponse",
    "ChatRequest",
    "ChatResponse",
    "ContextManager",
    "HookHandler",
    "HookResult",
    "ModelInfo",
    "Orchestrator",
    "Provider",
    "ProviderInfo",
    "Tool",
    "ToolCall",
    "ToolResult",
]


@runtime_checkable
class Orchestrator(Protocol):
    """Runs a turn."""

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
    ) -> str:
        """Run the turn that `prompt` starts and return the answer.

        An implementation that also takes `coordinator` or `**kwargs` is given the coordinator.
        """
        ...


@runtime_checkable
class Provider(Protocol):
    """Connects one vendor of language models."""

    @property
    def name(self) -> str: ...

    def get_info(self) -> ProviderInfo: ...

    async def list_models(self) -> list[ModelInfo]: ...

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Send `request` and return the answer; failures are raised as `llm_errors.LLMError`."""
        ...

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]: ...


@runtime_checkable
class Tool(Protocol):
    """Something the model can use.

    A JSON schema of the input is optional: `input_schema`, a dict, or `get_schema()`, which returns one. A class that
    inherits from here and has neither gets an empty `input_schema`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not getattr(cls, "_is_protocol", False) and not (hasattr(cls, "input_schema") or hasattr(cls, "get_schema")):
            type.__setattr__(cls, "input_schema", {})  # not declared: it is not a member of the protocol

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        ...

    async def execute(self, input: dict[str, Any]) -> ToolResult: ...


@runtime_checkable
class ContextManager(Protocol):
    """Keeps the messages of a session."""

    async def add_message(self, message: dict[str, Any]) -> None: ...

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """Return the messages for the next request, compacted to the budget.

        Without `token_budget` the budget follows from what `provider` says about its model.
        """
        ...

    async def get_messages(self) -> list[dict[str, Any]]:
        """Return all messages, uncompacted."""
        ...

    async def set_messages(self, messages: list[dict[str, Any]]) -> None: ...

    async def clear(self) -> None: ...


@runtime_checkable
class HookHandler(Protocol):
    """Answers events."""

    async def __call__(self, event: str, data: EventData) -> HookResult: ...


class ApprovalRequest(KernelModel):
    """What a tool wants to do. A `timeout` of `None` waits forever."""

    tool_name: str
    action: str
    details: dict[str, Any] = Field(default_factory=dict)
    risk_level: str
    timeout: float | None = None

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, timeout: float | None) -> float | None:
        if timeout is not None and timeout <= 0:
            raise ValueError("Timeout must be positive or None (infinite wait)")
        return timeout


class ApprovalResponse(KernelModel):
    """The verdict; with `remember` it also stands for like requests later on."""

    approved: bool
    reason: str | None = None
    remember: bool = False


@runtime_checkable
class ApprovalProvider(Protocol):
    """Decides on behalf of a person."""

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse: ...
