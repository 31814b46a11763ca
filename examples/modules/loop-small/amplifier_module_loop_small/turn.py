"""One turn: from the prompt to the answer, with an event at every step."""

import json
from typing import Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    ContextInjection,
    ContextManager,
    HookRegistry,
    HookResult,
    Message,
    ModuleCoordinator,
    Provider,
    TextBlock,
    Tool,
    ToolCall,
    ToolResult,
    ToolSpec,
    events,
)
from amplifier_core.utils import json_safe


class Turn:
    def __init__(
        self,
        context: ContextManager,
        provider: tuple[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None,
    ) -> None:
        self._context, self._tools, self._hooks, self._coordinator = context, tools, hooks, coordinator
        self._provider_name, self._provider = provider
        self._provider_calls = 0
        self._notes: list[ContextInjection] = []  # what hooks add to the next request only
        self._deferred: list[tuple[HookResult, str]] = []  # injections that wait for the end of a tool round

    async def run(self, prompt: str, *, max_rounds: int) -> str:
        """Return the answer; `execution:start` and `execution:end` frame every turn that a hook let begin."""
        verdict = await self._ask(events.PROMPT_SUBMIT, {"prompt": prompt})
        if verdict.action == "deny":
            await self._complete("incomplete")
            return _denial(verdict)
        prompt = (verdict.data or {}).get("prompt", prompt)
        await self._hooks.emit(events.EXECUTION_START, {"prompt": prompt})
        status, answer = "error", ""
        try:
            await self._context.add_message({"role": "user", "content": prompt})
            status, answer = await self._converse(max_rounds)
            preview = {"response_preview": answer[:200], "length": len(answer)}
            await self._hooks.emit(events.PROMPT_COMPLETE, preview)
        finally:
            await self._complete(status)
            outcome = status if status in ("cancelled", "error") else "completed"
            await self._hooks.emit(events.EXECUTION_END, {"response": answer, "status": outcome})
        return answer

    async def _converse(self, max_rounds: int) -> tuple[str, str]:
        """Alternate between the provider and the tools; return a status and the answer."""
        for round_number in range(max_rounds + 1):
            if await self._is_cancelled():
                return "cancelled", ""
            messages = await self._context.get_messages_for_request(provider=self._provider)
            about = {"provider": self._provider_name, "iteration": round_number}
            answer = await self._hooks.emit(events.PROVIDER_REQUEST, {**about, "messages": messages})
            verdict = await self._settle(answer, events.PROVIDER_REQUEST)
            if verdict.action == "deny":
                return "incomplete", _denial(verdict)
            if answer.action == "inject_context":  # it may be stored by now, and then belongs into this request
                messages = await self._context.get_messages_for_request(provider=self._provider)
            response = await self._call_provider(messages, about)
            calls = self._provider.parse_tool_calls(response)
            await self._context.add_message(_assistant_message(response, calls))
            if not calls:
                text = "\n\n".join(block.text for block in response.content if isinstance(block, TextBlock))
                return ("success" if text else "incomplete"), text
            for call in calls:
                content = await self._run_tool(call)
                await self._context.add_message({"role": "tool", "tool_call_id": call.id, "content": content})
            for injection, event in self._deferred:
                await self._settle(injection, event)
            self._deferred.clear()
        return "incomplete", f"Stopped: the model still wanted tools after {max_rounds} rounds."

    async def _call_provider(self, messages: list[dict[str, Any]], about: dict[str, Any]) -> ChatResponse:
        notes = [Message(role=note.role, content=note.content) for note in self._notes]
        self._notes.clear()
        request = ChatRequest(
            messages=[*(Message.model_validate(message) for message in messages), *notes],
            tools=[_spec(name, tool) for name, tool in self._tools.items()] or None,
        )
        self._provider_calls += 1
        try:
            response = await self._provider.complete(request)
        except Exception as exc:
            error = {"type": type(exc).__name__, "msg": str(exc)}
            await self._hooks.emit(events.PROVIDER_ERROR, {"provider": self._provider_name, "error": error})
            raise
        report = {"usage": response.usage, "tool_calls": bool(response.tool_calls), "response": response}
        await self._hooks.emit(events.PROVIDER_RESPONSE, {**about, **report})
        return response

    async def _run_tool(self, call: ToolCall) -> str:
        """Return what the model is told about one call; a tool that fails does not end the turn."""
        facts = {"tool_name": call.name, "tool_call_id": call.id}
        verdict = await self._ask(events.TOOL_PRE, {**facts, "tool_input": call.arguments}, defer=True)
        if verdict.action == "deny":
            return f"Denied by hook: {verdict.reason or 'no reason given'}"
        tool_input = (verdict.data or {}).get("tool_input", call.arguments)
        try:
            result = await self._tool(call.name).execute(tool_input)
        except Exception as exc:  # noqa: BLE001 - a tool's failure is news for the model, reported as an event
            await self._hooks.emit(events.TOOL_ERROR, {**facts, "error": {"type": type(exc).__name__, "msg": str(exc)}})
            return f"Error executing tool: {exc}"
        report = {**facts, "tool_input": tool_input, "result": result, "tool_result": result}
        verdict = await self._ask(events.TOOL_POST, report, defer=True)
        return _shown(result, verdict.data or {})

    def _tool(self, name: str) -> Tool:
        if name not in self._tools:
            raise LookupError(f"there is no tool {name!r}; mounted are: {', '.join(self._tools) or 'none'}")
        return self._tools[name]

    async def _ask(self, event: str, data: dict[str, Any], *, defer: bool = False) -> HookResult:
        """Emit an event whose answer counts.

        `modify` is not an answer the emitter sees: the answer is `continue`, and its data is what hooks made of it.
        """
        answer = await self._hooks.emit(event, data)
        if defer and answer.action == "inject_context":  # nothing may stand between a tool call and its result
            self._deferred.append((answer, event))
            return answer
        return await self._settle(answer, event)

    async def _settle(self, answer: HookResult, event: str) -> HookResult:
        """Have the coordinator store injections and ask the user; keep what is meant for the next request only."""
        if self._coordinator is not None:
            answer = await self._coordinator.process_hook_result(answer, event, "loop-small")
        elif answer.action == "ask_user":
            answer = HookResult(action="deny", reason="no one can be asked for approval")
        self._notes += answer.context_injections
        return answer

    async def _is_cancelled(self) -> bool:
        if self._coordinator is None or not self._coordinator.cancellation.is_cancelled:
            return False
        token = self._coordinator.cancellation
        await self._hooks.emit(events.CANCEL_REQUESTED, {"orchestrator": "loop-small", "state": token.state})
        await token.trigger_callbacks()
        return True

    async def _complete(self, status: str) -> None:
        report = {"orchestrator": "loop-small", "turn_count": self._provider_calls, "status": status}
        await self._hooks.emit(events.ORCHESTRATOR_COMPLETE, report)


def _denial(verdict: HookResult) -> str:
    return f"Operation denied: {verdict.reason or 'no reason given'}"


def _spec(name: str, tool: Tool) -> ToolSpec:
    """Describe a tool to the model; its schema is optional and has two spellings."""
    schema = getattr(tool, "input_schema", None)
    if schema is None and hasattr(tool, "get_schema"):
        schema = tool.get_schema()
    return ToolSpec(name=name, description=tool.description, parameters=schema or {"type": "object", "properties": {}})


def _assistant_message(response: ChatResponse, calls: list[ToolCall]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": [block.model_dump() for block in response.content]}
    if calls:
        message["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
    return message


def _shown(result: ToolResult, data: dict[str, Any]) -> str:
    """Return the result as text, or what a hook put in its place; an unchanged value is the very same object."""
    for key in ("result", "tool_result"):
        changed = data.get(key, result)
        if changed is not result:
            if isinstance(changed, dict) and {"success", "output"} <= changed.keys():
                changed = changed["output"]
            return changed if isinstance(changed, str) else json.dumps(json_safe(changed))
    return result.get_serialized_output()
