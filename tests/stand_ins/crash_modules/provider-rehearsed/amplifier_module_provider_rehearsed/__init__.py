"""provider-rehearsed: calls the tools that a prompt names, and tells when a request has a tool call without its result.

A prompt is `<token>: <tool> <tool> …`. The ids of the calls begin anew with every answer, as those of some vendors do;
what a call does is told apart by the token in its input. Configuration: `complaints`, the file for what is wrong with
requests, and `pause_s`, how long each word of an answer takes.
"""

import asyncio
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    ModelInfo,
    ModuleCoordinator,
    ProviderInfo,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from amplifier_core.utils.tool_messages import calls_in, results_in

__amplifier_module_type__ = "provider"

USED = {"input_tokens": 70, "output_tokens": 30, "total_tokens": 100, "cost_usd": Decimal("0.01")}


class RehearsedProvider:
    name = "rehearsed"
    default_model = "rehearsed-1"

    def __init__(self, coordinator: ModuleCoordinator, complaints: Path, pause_s: float) -> None:
        self._coordinator, self._complaints, self._pause_s = coordinator, complaints, pause_s

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="rehearsed", display_name="Rehearsed", defaults={"max_output_tokens": 100})

    async def list_models(self) -> list[ModelInfo]:
        return []

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        self._look_for_orphans(request)
        prompts = [index for index, message in enumerate(request.messages) if message.role == "user"]
        prompt = str(_text(request.messages[prompts[-1]].content))
        is_answered = any(results_in(message) for message in request.messages[prompts[-1] :])
        token, _, tools = prompt.partition(": ")
        calls = [] if is_answered else [_call(token, index, name) for index, name in enumerate(tools.split())]
        text = "Let me see." if calls else " ".join(f"{token}-word{index}" for index in range(12))
        await self._stream(text)
        content: list[Any] = [TextBlock(text=text)]
        content += [ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls]
        usage = Usage(**USED)
        finish = "tool_calls" if calls else "stop"
        return ChatResponse(content=content, tool_calls=calls or None, usage=usage, finish_reason=finish)

    async def _stream(self, text: str) -> None:
        request_id = uuid.uuid4().hex
        for word in text.split(" "):
            piece = {"request_id": request_id, "block_type": "text", "text": f"{word} "}
            await self._coordinator.hooks.emit("llm:stream_block_delta", piece)
            await asyncio.sleep(self._pause_s * (12 if text.startswith("slow") else 1))

    def _look_for_orphans(self, request: ChatRequest) -> None:
        open_calls: dict[str, str] = {}
        for message in request.messages:
            results = [result.call_id for result in results_in(message) or ()]
            wrong = [call_id for call_id in results if open_calls.pop(call_id, None) is None]
            if (open_calls and not results) or wrong:
                with self._complaints.open("a") as file:
                    file.write(f"without a result: {open_calls}, without a call: {wrong}, at {message}\n")
            open_calls |= {call.id: call.name for call in calls_in(message)}


def _call(token: str, index: int, name: str) -> ToolCall:
    own = f"{token}.{index}"
    inputs: dict[str, dict[str, Any]] = {
        "bash": {"command": f"echo begin {own} >> runs.txt; sleep 0.03; echo end {own} >> runs.txt"},
        "background": {"command": f"echo begin {own} >> runs.txt; sleep 300", "run_in_background": True},
        "read_file": {"file_path": "notes.md"},
        "task": {"agent": "helper", "instruction": f"{own}c: note look send"},
    }
    tool = "bash" if name == "background" else name
    return ToolCall(id=f"call_{index}", name=tool, arguments=inputs.get(name, {"token": own}))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(getattr(block, "text", "") or "" for block in content)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    given = config or {}
    provider = RehearsedProvider(coordinator, Path(given["complaints"]), float(given.get("pause_s", 0.01)))
    await coordinator.mount("providers", provider, name="rehearsed")
