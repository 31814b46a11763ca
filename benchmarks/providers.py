"""What a provider needs to put a long conversation into its vendor's form, once for every request of a turn.

Each request holds the messages of the one before and two more, so what was converted already can be used again. The
floor writes the same body as JSON, which every client does anyway. Run it with `make bench`, or alone:

    python benchmarks/providers.py [--quick] [--check]
"""

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from _harness import REPOSITORY, Figure, Report, Row, Target

sys.path.append(str(REPOSITORY / "modules/provider-anthropic"))  # where the modules are not installed
sys.path.append(str(REPOSITORY / "modules/provider-openai"))

from amplifier_module_provider_anthropic.request_body import RequestBuilder as MessagesBuilder
from amplifier_module_provider_anthropic.settings import AnthropicSettings
from amplifier_module_provider_anthropic.settings import facts_of as anthropic_facts_of
from amplifier_module_provider_openai.chat_api import RequestBuilder as ChatBuilder
from amplifier_module_provider_openai.pending_request import PendingRequest
from amplifier_module_provider_openai.responses_items import RequestBuilder as ResponsesBuilder
from amplifier_module_provider_openai.settings import OpenAISettings
from amplifier_module_provider_openai.settings import facts_of as openai_facts_of

from amplifier_core import ChatRequest, Message, ToolSpec
from amplifier_kit.providers.call import ProviderCall
from amplifier_kit.providers.options import OptionDefaults, Shortfalls, WarnOnce, read_options
from amplifier_kit.providers.stream import ProviderEvents
from amplifier_kit.providers.tool_sequence import ToolSequence

Body = dict[str, Any]
Convert = Callable[[ChatRequest], Coroutine[Any, Any, Body]]

SIZES = (500, 1_000, 2_000)
TARGET_MS = 5
LINEAR = 3.0  # how many times longer twice as many messages may take; quadratic work would take four times
TOOLS = 20


def turns(count: int) -> list[Message]:
    """Questions that a thought, a tool call, its result and an answer follow."""
    messages: list[Message] = []
    for number in range(count // 4):
        call_id = f"call_{number}"
        call = {"type": "tool_call", "id": call_id, "name": "read_file", "input": {"file_path": f"src/{number}.py"}}
        thinking = {"type": "thinking", "thinking": "t" * 200, "signature": "s" * 200, "content": ["e" * 400, "rs_1"]}
        given: list[dict[str, Any]] = [
            {"role": "user", "content": f"question {number} " + "x" * 120},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "I will look."}, call]},
            {"role": "tool", "tool_call_id": call_id, "content": "y" * 800},
            {"role": "assistant", "content": [{"type": "text", "text": f"answer {number} " + "z" * 200}]},
        ]
        messages += map(Message.model_validate, given)
    return messages


def offered() -> list[ToolSpec]:
    properties = {f"argument_{number}": {"type": "string", "description": "d" * 80} for number in range(6)}
    schema = {"type": "object", "properties": properties, "required": ["argument_0"]}
    return [ToolSpec(name=f"tool_{number}", description="d" * 300, parameters=schema) for number in range(TOOLS)]


def anthropic() -> Convert:
    settings = AnthropicSettings.read({"api_key": "none"})
    sequence, builder = ToolSequence("anthropic", ProviderEvents(None)), MessagesBuilder(settings)
    defaults, facts = OptionDefaults(settings.default_model), anthropic_facts_of(settings.default_model)

    async def convert(request: ChatRequest) -> Body:
        messages = sequence.arrange(await sequence.repair(request))
        return builder.build(request, messages, read_options(request, {}, defaults), {}, facts).body

    return convert


def openai(make: Callable[[OpenAISettings, WarnOnce], ResponsesBuilder | ChatBuilder]) -> Convert:
    settings, warn = OpenAISettings.read({"api_key": "none"}), WarnOnce("provider-openai")
    events = ProviderEvents(None)
    sequence, builder = ToolSequence("openai", events, closes_turn=True), make(settings, warn)
    defaults, facts = OptionDefaults(settings.default_model), openai_facts_of(settings.default_model)

    async def convert(request: ChatRequest) -> Body:
        stored = await sequence.repair(request)
        asked = PendingRequest(
            call=ProviderCall(events, provider="openai", model=settings.default_model),
            request=request,
            given={},
            options=read_options(request, {}, defaults),
            facts=facts,
            stored=stored,
            messages=sequence.arrange(stored),
            is_repaired=False,
            shortfalls=Shortfalls(warn),
        )
        return builder.build(asked).body

    return convert


PROVIDERS: dict[str, Callable[[], Convert]] = {
    "anthropic, Messages": anthropic,
    "openai, Responses": lambda: openai(ResponsesBuilder),
    "openai, Chat Completions": lambda: openai(ChatBuilder),
}


async def per_request(convert: Convert, messages: list[Message], requests: int) -> tuple[float, float]:
    """Return the milliseconds of a request after the first, and those of writing its body as JSON, on average."""
    tools = offered()
    start = len(messages) - 2 * requests - 1  # a request ends with what the user or a tool says
    await convert(ChatRequest(messages=messages[:start], tools=tools))
    converting_s = writing_s = 0.0
    for number in range(1, requests + 1):
        request = ChatRequest(messages=messages[: start + 2 * number], tools=tools)
        started = time.perf_counter()
        body = await convert(request)
        converted = time.perf_counter()
        json.dumps(body, ensure_ascii=False)
        converting_s += converted - started
        writing_s += time.perf_counter() - converted
    return converting_s * 1000 / requests, writing_s * 1000 / requests


def rows(make: Callable[[], Convert], *, rounds: int, requests: int) -> list[Row]:
    found: list[Row] = []
    best = dict.fromkeys(SIZES, 0.0)
    for size in SIZES:
        messages = turns(size)
        samples = [asyncio.run(per_request(make(), messages, requests)) for _ in range(rounds)]
        ours, floor = (Figure(values) for values in zip(*samples, strict=True))
        best[size] = ours.best
        targets = []
        if size == SIZES[1]:
            targets.append(Target("best", best[size], TARGET_MS, "ms"))
        if size == SIZES[2]:
            targets.append(Target("to half as many", best[size] / best[SIZES[1]], LINEAR, "×"))
        found.append(Row(f"{size:,} messages", "ms", {"ours": ours, "floor": floor}, targets))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the providers' conversions beside writing the bodies.")
    parser.add_argument("--quick", action="store_true", help="measure for seconds instead of a minute")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    rounds, requests = (2, 20) if arguments.quick else (7, 50)
    report = Report("providers", None)
    for name, make in PROVIDERS.items():
        report.add(f"one more request of a conversation: {name}", rows(make, rounds=rounds, requests=requests))
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
