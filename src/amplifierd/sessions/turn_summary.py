"""What a turn did, collected while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_core import ChatResponse, ToolResult
from amplifier_core.utils.tool_messages import Call, calls_in, results_in
from amplifier_kit.messages.results import as_tool_result

from .calls import CallLayer, ProviderCall, ProviderStep, ToolCall, ToolStep
from .stoppable_tools import CANCELLED
from .turn_result import ToolCallSummary, ToolStatus


class TurnSummary(CallLayer):
    """Notes the calls of one turn after another."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._calls: dict[str, ToolCallSummary] = {}
        self._unanswered: dict[str, Call] = {}

    def begin(self) -> None:
        self.finish_reason = None
        self._calls, self._unanswered = {}, {}

    @property
    def tool_calls(self) -> tuple[ToolCallSummary, ...]:
        return tuple(self._calls.values())

    def unanswered(self) -> tuple[tuple[Call, bool], ...]:
        """Return the calls that have no result in the conversation, each with whether it was begun."""
        return tuple((call, self._calls[call.id].status != "not_run") for call in self._unanswered.values())

    def hear(self, message: Mapping[str, Any]) -> None:
        """Note the calls that a message asks for, and the answers to calls that never reached their tool."""
        for call in calls_in(message):
            self._unanswered[call.id] = call
            self._calls.setdefault(call.id, ToolCallSummary(call.id, call.name, "not_run"))
        for result in results_in(message) or ():
            self._unanswered.pop(result.call_id, None)
            noted = self._calls.get(result.call_id)
            if noted is not None and noted.status == "not_run" and str(result.output).startswith("Denied"):
                self._note(noted.id, noted.name, "denied")

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        response = await proceed(call)
        self.finish_reason = response.finish_reason
        return response

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        status: ToolStatus = "cancelled"
        try:
            returned = await proceed(call)
            status = _status_of(as_tool_result(returned))
        except Exception:
            status = "failed"
            raise
        finally:
            self._note(call.tool_call_id, call.name, status)
        return returned

    def _note(self, call_id: str, name: str, status: ToolStatus) -> None:
        self._calls[call_id] = ToolCallSummary(call_id, name, status)


def _status_of(result: ToolResult) -> ToolStatus:
    if result.success:
        return "done"
    return "cancelled" if (result.error or {}).get("code") == CANCELLED else "failed"
