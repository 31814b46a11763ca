"""hooks-trace: prints every event it hears, in order, one line each.

It observes and nothing else: every answer is `continue`, so a session runs the same with and without it.
"""

import json
from collections.abc import Callable
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator
from amplifier_core.events import ALL_EVENTS

__amplifier_module_type__ = "hook"

Data = dict[str, Any]

# What is worth showing of an event; the others are shown by name only.
DETAILS: dict[str, Callable[[Data], str]] = {
    "session:start": lambda data: f"session {data['session_id'][:8]} begins with its first prompt",
    "prompt:submit": lambda data: f'"{_short(data["prompt"])}"',
    "execution:start": lambda data: "no hook objected: the turn runs",
    "provider:request": lambda data: f"{data['provider']}, {_count(data['messages'], 'message')} so far",
    "llm:request": lambda data: f"{data['model']} is called",
    "llm:response": lambda data: f"{data['usage']['output_tokens']} tokens came back",
    "provider:response": lambda data: "it wants a tool" if data["tool_calls"] else "it answers",
    "provider:error": lambda data: data["error"]["msg"],
    "tool:pre": lambda data: f"{data['tool_name']} {data['tool_input']}",
    "tool:post": lambda data: _short(json.dumps(data["result"]["output"])),
    "tool:error": lambda data: data["error"]["msg"],
    "prompt:complete": lambda data: f"{data['length']} characters",
    "orchestrator:complete": lambda data: f"{data['status']} after {data['turn_count']} provider calls",
    "execution:end": lambda data: data["status"],
    "session:end": lambda data: f"session {data['session_id'][:8]}: {data['status']}",
}


class Trace:
    def __init__(self) -> None:
        self._heard = 0

    async def __call__(self, event: str, data: Data) -> HookResult:
        self._heard += 1
        print(f"  {self._heard:>2}  {event:<22} {_detail(event, data)}".rstrip())
        return HookResult()


def _detail(event: str, data: Data) -> str:
    try:
        return DETAILS[event](data)
    except (LookupError, TypeError):  # another loop may send other fields; the event is still worth its line
        return ""


def _short(text: str, width: int = 72) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _count(items: list[Any], noun: str) -> str:
    return f"{len(items)} {noun}" if len(items) == 1 else f"{len(items)} {noun}s"


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Listen after everyone else (priority 100), so that the trace shows what came of an event."""
    trace = Trace()
    handles = [coordinator.hooks.register(event, trace, priority=100, name="hooks-trace") for event in ALL_EVENTS]

    def cleanup() -> None:
        for unregister in handles:
            unregister()

    return cleanup
