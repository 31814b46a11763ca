"""What recording a provider request and keeping a tree within its budget add to a provider call.

The requests share their messages, as those of a conversation do; each adds two. Stores are stand-ins that do nothing:
the disk is measured elsewhere. Run it with `make bench`, or alone:

    python benchmarks/session_layers.py [--quick] [--check]
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from _harness import Figure, Report, Row, Target

from amplifier_core import ChatRequest, ChatResponse, Message, TextBlock, ToolSpec, Usage
from amplifier_core.testing import MockProvider
from amplifierd.limits import Limits
from amplifierd.sessions.conversation.message_digest import TranscriptIndex
from amplifierd.sessions.layers.budget_layer import BudgetLayer
from amplifierd.sessions.layers.calls import CallLayer, ProviderCall
from amplifierd.sessions.layers.request_parts import RequestRecorder
from amplifierd.sessions.layers.tree_budget import TreeBudget

WANTED_US = 300
SIZES = (100, 500)
CALLS = 10
RESPONSE = ChatResponse(
    content=[TextBlock(text="Done.")], usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15)
)
TOOLS = [
    ToolSpec(name=f"tool_{number}", description="Does a thing.", parameters={"type": "object", "properties": {}})
    for number in range(20)
]


async def nothing(*_: Any) -> None: ...


async def answered(call: ProviderCall) -> ChatResponse:
    return RESPONSE


class Conversation:
    """Messages that are in a transcript, two more with every request."""

    def __init__(self, size: int) -> None:
        self.index = TranscriptIndex()
        self.messages: list[Message] = []
        self.extend(size)

    def extend(self, count: int) -> None:
        for _ in range(count):
            number = len(self.messages)
            message = {"role": "user" if number % 2 else "assistant", "content": f"{number} lorem ipsum dolor " * 20}
            self.index.add({**message, "id": f"m{number}"})
            self.messages.append(Message.model_validate(message))


def recorder(conversation: Conversation) -> CallLayer:
    return RequestRecorder(nothing, nothing, conversation.index)


def budget(conversation: Conversation) -> CallLayer:
    return BudgetLayer(TreeBudget(Limits(total_tokens=10**12, tool_calls=10**9)), nothing)


async def measured(make: Callable[[Conversation], CallLayer], size: int) -> list[float]:
    """Return the µs that each of the calls took inside the layer."""
    conversation, provider, taken = Conversation(size), MockProvider(), list[float]()
    layer = make(conversation)
    for number in range(CALLS + 1):
        request = ChatRequest.model_construct(
            **{**ChatRequest(messages=[]).__dict__, "messages": [*conversation.messages], "tools": TOOLS}
        )
        started = time.perf_counter()
        await layer.provider_call(ProviderCall("mock", provider, request), answered)
        if number:  # the first one has everything to look at
            taken.append((time.perf_counter() - started) * 1e6)
        conversation.extend(2)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the layers around a provider call add.")
    parser.add_argument("--quick", action="store_true", help="measure for a second")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else 20
    report, rows = Report("session_layers", peer=None), []
    for name, make in (("record a request", recorder), ("keep within limits", budget)):
        for size in SIZES:
            figure = Figure([taken for _ in range(rounds) for taken in asyncio.run(measured(make, size))])
            targets = [Target("median", figure.median, WANTED_US, "µs")] if size == SIZES[0] else []
            rows.append(Row(f"{name}, {size} messages", "µs", {"ours": figure}, targets))
    report.add("layers around a provider call", rows)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
