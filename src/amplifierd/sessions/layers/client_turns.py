"""Turns whose client can run tools of its own: the model is offered them, and calls to them are handed to the client.

Such a call is never run here. It ends the turn: the loop gets a result that says where the call went, and its next
provider call an answer that closes the turn. When the client has run the tools, it asks again; what the model had said
so far is given to the loop without asking the model anew, and the calls get the client's results.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import amplifier_core
from amplifier_core import ChatResponse, ModuleCoordinator, TextBlock, ToolCallBlock, ToolResult
from amplifierd.exceptions import SessionStateError
from amplifierd.sessions.turn_result import TurnResult

from .calls import CallLayer, ProviderCall, ProviderStep, ToolCall, ToolStep

FINISH_REASON = "tool_calls"

_HANDED_OVER = "The client that asked runs this tool itself and comes back with the result."
_MOST_CLOSINGS = 8  # a loop that asks on and on, whatever it is told, is ended by an error


@dataclass(frozen=True)
class ClientTurn:
    """What a client wants of one turn.

    `tools` are OpenAI's function definitions: `{name, description, parameters}`. `answers` is what the model said in
    earlier rounds of this turn, each `{content, tool_calls: [{id, name, arguments}]}`, and `results` has the client's
    result of each of those calls. `options` are fields of the requests to the provider, such as `temperature`.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    answers: Sequence[Mapping[str, Any]] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


class ClientTool:
    """A tool that only the client can run, as loops and models see it."""

    effects: frozenset[str] = frozenset()
    retry = "safe"

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.name = str(definition["name"])
        self.description = str(definition.get("description") or "")
        self.input_schema: dict[str, Any] = dict(definition.get("parameters") or {"type": "object", "properties": {}})

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(success=True, output=_HANDED_OVER)


class ClientTurns(CallLayer):
    """Stands around the calls of one session; it lets everything pass but in turns of such clients."""

    def __init__(self) -> None:
        self._turn: ClientTurn | None = None
        self._answers: list[ChatResponse] = []
        self._handed: list[dict[str, Any]] = []
        self._closings = 0

    @asynccontextmanager
    async def turn(self, coordinator: ModuleCoordinator, wanted: ClientTurn) -> AsyncIterator[list[dict[str, Any]]]:
        """Offer a client's tools while a turn runs; yields the calls that are handed to it.

        Raises:
            SessionStateError: a tool of the session has the name of one of them.
        """
        tools = [ClientTool(definition) for definition in wanted.tools]
        taken = {tool.name for tool in tools} & set(coordinator.get("tools") or {})
        if taken:
            names = ", ".join(sorted(taken))
            raise SessionStateError(f"the session has tools of the same name: {names}", hint="give them other names")
        self._turn, self._closings, self._handed = wanted, 0, []
        self._answers = [_response(answer) for answer in wanted.answers]
        try:
            for tool in tools:
                await coordinator.mount("tools", tool, name=tool.name)
            yield self._handed
        finally:
            self._turn = None
            for tool in tools:
                await coordinator.unmount("tools", tool.name)

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        if self._turn is None:
            return await proceed(call)
        if self._handed:
            return self._closing()
        if self._answers:
            return self._answers.pop(0)
        return await proceed(replace(call, request=call.request.model_copy(update=dict(self._turn.options))))

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        if self._turn is None or not isinstance(call.tool, ClientTool):
            return await proceed(call)
        result = self._turn.results.get(call.tool_call_id)
        if result is not None:
            return ToolResult(success=True, output=result)
        self._handed.append({"id": call.tool_call_id, "name": call.tool.name, "arguments": call.input})
        return ToolResult(success=True, output=_HANDED_OVER)

    def _closing(self) -> ChatResponse:
        self._closings += 1
        if self._closings > _MOST_CLOSINGS:
            raise SessionStateError("the loop went on after the calls were handed to the client")
        return _response({"content": "The results of these calls come from the client."})


def _response(said: Mapping[str, Any]) -> ChatResponse:
    """Return an answer that took nothing, since it was paid for before or comes from nowhere."""
    nothing = amplifier_core.Usage(input_tokens=0, output_tokens=0, total_tokens=0, cost_usd=Decimal(0))
    calls = [amplifier_core.ToolCall(**call) for call in said.get("tool_calls") or ()]
    text = str(said.get("content") or "")
    blocks: list[Any] = [TextBlock(text=text)] if text else []
    blocks += [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
    finish = FINISH_REASON if calls else "stop"
    metadata = {"synthetic": True, "source": "client"}
    return ChatResponse(content=blocks, tool_calls=calls, usage=nothing, finish_reason=finish, metadata=metadata)


def finish_reason(result: TurnResult, handed: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why a turn ended: by what it said itself, unless it ended with calls for the client."""
    return FINISH_REASON if handed and result.status == "completed" else result.finish_reason
