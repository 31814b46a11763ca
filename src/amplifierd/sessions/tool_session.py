"""The tools of an agent, seen and called without a model.

A session plays the model's part: it asks for one call, and everything between the model and the tool is as always.
Hooks judge the call, questions reach the approver, policy and sandbox hold, a receipt and a checkpoint are stored.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    ModelInfo,
    ProviderInfo,
    TextBlock,
    ToolCallBlock,
    ToolResult,
    Usage,
)
from amplifier_core import ToolCall as WantedCall
from amplifier_core.utils.tool_messages import results_in
from amplifier_core.utils.tool_schema import tool_schema
from amplifier_kit.messages.conversation import output_text
from amplifierd.exceptions import ExecutionError
from amplifierd.sessions.layers.calls import CallLayer, ProviderCall, ProviderStep, ToolCall, ToolStep
from amplifierd.sessions.questions.approval import Approver

from .home_sessions import Sessions
from .session import Session

TAG = "tool-call"
"""The tag of sessions in which a tool was called by hand."""

_CALL_ID = "call_by_hand"
_NOTHING = Usage(input_tokens=0, output_tokens=0, total_tokens=0)


@dataclass(frozen=True)
class ToolFacts:
    """A tool as a model is told of it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True)
class ToolOutcome:
    """What came of a call, after all hooks: `output` is what a model would read. `ran` is false for a refused call."""

    session_id: str
    tool_name: str
    ran: bool
    success: bool
    output: Any


class ToolSession:
    """An open session whose tools can be called."""

    def __init__(self, session: Session, model: _PlayedModel) -> None:
        self.session, self._model = session, model

    def tools(self) -> tuple[ToolFacts, ...]:
        """Return the tools that are mounted."""
        mounted = self.session.runner.kernel.session.coordinator.get("tools") or {}
        return tuple(_facts(name, tool) for name, tool in mounted.items())

    async def invoke(self, tool_name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Call a tool.

        Raises:
            ExecutionError: there is none of that name, or the session could not make the call.
        """
        names = [tool.name for tool in self.tools()]
        if tool_name not in names:
            raise ExecutionError(f"there is no tool {tool_name!r}", hint=f"there are {', '.join(names) or 'none'}")
        self._model.begin(tool_name, arguments)
        result = await self.session.execute(f"{tool_name} {json.dumps(dict(arguments), ensure_ascii=False)}")
        if self._model.told is None:
            why = (result.error or {}).get("detail") or f"the turn was {result.status}"
            raise ExecutionError(f"{tool_name} was not called: {why}")
        outcome = self._model.result
        success = outcome is not None and outcome.success
        return ToolOutcome(self.session.session_id, tool_name, outcome is not None, success, _as_data(self._model.told))


@asynccontextmanager
async def open_tools(
    sessions: Sessions, *, approver: Approver | None = None, keep: bool = True, **request: Any
) -> AsyncIterator[ToolSession]:
    """Open a session for its tools; `request` is what `sessions.create` takes.

    It has ended afterwards, and with `keep` it stays: what a tool did can be looked at and undone.
    """
    model = _PlayedModel()
    record = await sessions.create(**request, tags=(TAG,))
    try:
        async with sessions.resume(record.session_id, approver=approver, layers=(model,)) as session:
            coordinator = session.runner.kernel.session.coordinator
            if not coordinator.get("providers"):  # those of the agent have no key here
                await coordinator.mount("providers", _NoModel(), name=_NoModel.name)
            yield ToolSession(session, model)
    except BaseException:
        keep = keep and model.is_begun
        raise
    finally:
        if keep:
            await sessions.end(record.session_id)
        else:
            await sessions.delete(record.session_id, force=True, forever=True)


class _PlayedModel(CallLayer):
    """Answers in place of every provider: first with the call that is wanted, then with an end."""

    def __init__(self) -> None:
        self.is_begun = False
        self.told: str | None = None
        self.result: ToolResult | None = None
        self._wanted: WantedCall | None = None

    def begin(self, tool_name: str, arguments: Mapping[str, Any]) -> None:
        self.is_begun, self.told, self.result = True, None, None
        self._wanted = WantedCall(id=_CALL_ID, name=tool_name, arguments=dict(arguments))

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            block = ToolCallBlock(id=wanted.id, name=wanted.name, input=wanted.arguments)
            return ChatResponse(content=[block], tool_calls=[wanted], usage=_NOTHING, finish_reason="tool_calls")
        results = (result for message in reversed(call.request.messages) for result in results_in(message) or ())
        self.told = next((output_text(result.output) for result in results), "")
        return ChatResponse(content=[TextBlock(text=self.told)], usage=_NOTHING, finish_reason="stop")

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        result = await proceed(call)
        if isinstance(result, ToolResult):
            self.result = result
        return result


class _NoModel:
    """Stands where no provider could be mounted; it is never asked."""

    name = "none"

    def get_info(self) -> ProviderInfo:
        defaults = {"model": self.name, "context_window": 200_000, "max_output_tokens": 8_000}
        return ProviderInfo(id=self.name, display_name="No model", defaults=defaults)

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        raise ExecutionError("there is no model")

    def parse_tool_calls(self, response: ChatResponse) -> list[WantedCall]:
        return response.tool_calls or []


def _facts(name: str, tool: Any) -> ToolFacts:
    return ToolFacts(name, str(getattr(tool, "description", "")), tool_schema(tool))


def _as_data(text: str) -> Any:
    """Return what a tool's text means where it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text
