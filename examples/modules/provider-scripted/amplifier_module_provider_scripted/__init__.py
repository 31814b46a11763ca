"""provider-scripted: follows a script instead of calling a model, so that it needs neither a key nor a network.

Configuration: `script`, a list of steps, one for each request:

    {"call": "word_count", "input": {"path": "README.md"}}    the model asks for a tool
    {"say": "It has {words} words."}                          the model answers; fields come from the last tool result
"""

import json
import time
from typing import Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    HookRegistry,
    ModelInfo,
    ModuleCoordinator,
    ProviderInfo,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
    events,
)

__amplifier_module_type__ = "provider"

MODEL = "script-1"


class ScriptedProvider:
    name = "scripted"

    def __init__(self, script: list[dict[str, Any]], hooks: HookRegistry) -> None:
        self._script, self._hooks = script, hooks
        self._position = 0

    def get_info(self) -> ProviderInfo:
        defaults = {"model": MODEL, "context_window": 8_000, "max_output_tokens": 1_000}
        return ProviderInfo(id=self.name, display_name="Script", capabilities=["tools", "local"], defaults=defaults)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id=MODEL, display_name="Script", context_window=8_000, max_output_tokens=1_000)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Take the next step of the script; `llm:request` and `llm:response` frame what would be the network call."""
        about = {"provider": self.name, "model": MODEL}
        await self._hooks.emit(events.LLM_REQUEST, {**about, "message_count": len(request.messages)})
        started = time.perf_counter()
        response = self._next(request)
        duration_ms = (time.perf_counter() - started) * 1000
        outcome = {"status": "ok", "duration_ms": duration_ms, "usage": response.usage}
        await self._hooks.emit(events.LLM_RESPONSE, {**about, **outcome})
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    def _next(self, request: ChatRequest) -> ChatResponse:
        script = [*self._script[self._position :], {"say": "The script is over."}]
        step = script[0]
        self._position += 1
        read = sum(len(str(message.content)) for message in request.messages) // 4
        if "call" in step:
            call = ToolCall(id=f"call_{self._position}", name=step["call"], arguments=step.get("input", {}))
            block = ToolCallBlock(id=call.id, name=call.name, input=call.arguments)
            return ChatResponse(content=[block], tool_calls=[call], usage=_usage(read, 10), finish_reason="tool_calls")
        text = _filled(step["say"], request)
        usage = _usage(read, len(text) // 4)
        return ChatResponse(content=[TextBlock(text=text)], usage=usage, finish_reason="stop")


def _filled(text: str, request: ChatRequest) -> str:
    """Fill the fields of `text` from the last tool result, or pass the result on when it is not an object."""
    result = next((str(message.content) for message in reversed(request.messages) if message.role == "tool"), "{}")
    try:
        fields = json.loads(result)
    except ValueError:
        fields = None
    return text.format(**fields) if isinstance(fields, dict) else f"That did not work: {result}"


def _usage(read: int, written: int) -> Usage:
    return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    script = (config or {}).get("script", [])
    await coordinator.mount("providers", ScriptedProvider(script, coordinator.hooks), name="scripted")
