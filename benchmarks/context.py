"""What a context manager costs: adding messages, asking for a request after each, and compacting a long history.

The floor keeps the same messages in a list and copies it for every request. Run it with `make bench`, or alone:

    python benchmarks/context.py [--quick] [--check]
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from _harness import REPOSITORY, Figure, Report, Row, Target

sys.path.append(str(REPOSITORY / "modules/context-simple"))  # where the module is not installed

from amplifier_module_context_simple import SimpleContextManager

Message = dict[str, Any]
Measurement = Callable[[list[Message]], Awaitable[float]]

GROWTH = (5_000, 10_000, 20_000)
GROWTH_TARGET_MS = 500
COMPACTION = (2_400, 4_800, 9_600)
COMPACTION_TARGET_MS = 60
LINEAR = 3.0  # how many times longer twice as many messages may take; quadratic work would take four times


def chat(count: int) -> list[Message]:
    """Questions and answers in turn."""
    return [
        {"role": "assistant" if number % 2 else "user", "content": f"message {number} " + "x" * 120}
        for number in range(count)
    ]


def tool_use(count: int) -> list[Message]:
    """Questions that a tool call, its result and an answer follow."""
    messages: list[Message] = []
    for number in range(count // 4):
        call_id = f"call_{number}"
        messages += [
            {"role": "user", "content": f"question {number} " + "x" * 120},
            {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "tool": "read", "arguments": {}}]},
            {"role": "tool", "tool_call_id": call_id, "content": "y" * 800},
            {"role": "assistant", "content": f"answer {number} " + "z" * 200},
        ]
    return messages


async def growth(messages: list[Message]) -> float:
    """Return the milliseconds that all adds take with a request after each."""
    context = SimpleContextManager()
    started = time.perf_counter()
    for message in messages:
        await context.add_message(message)
        await context.get_messages_for_request()
    return (time.perf_counter() - started) * 1000


async def bare_growth(messages: list[Message]) -> float:
    history: list[Message] = []

    async def add(message: Message) -> None:
        history.append({**message, "metadata": {"timestamp": time.time()}})

    async def request() -> list[Message]:
        return history.copy()

    started = time.perf_counter()
    for message in messages:
        await add(message)
        await request()
    return (time.perf_counter() - started) * 1000


async def compaction(messages: list[Message]) -> float:
    """Return the milliseconds of the one request that compacts a history of half as many tokens again as fit."""
    context = SimpleContextManager(compaction_notice_enabled=False)
    for message in messages:
        await context.add_message(message)
    budget = context._estimate_tokens(messages) * 2 // 3
    started = time.perf_counter()
    view = await context.get_messages_for_request(token_budget=budget)
    elapsed = (time.perf_counter() - started) * 1000
    if len(view) >= len(messages):
        sys.exit("error: nothing was compacted")
    return elapsed


async def resumption(messages: list[Message]) -> float:
    """Return the milliseconds to take over a whole history and compact it at once."""
    context = SimpleContextManager(compaction_notice_enabled=False)
    budget = context._estimate_tokens(messages) * 2 // 3
    started = time.perf_counter()
    await context.set_messages(messages)
    await context.get_messages_for_request(token_budget=budget)
    return (time.perf_counter() - started) * 1000


def rows(
    sizes: tuple[int, int, int],
    conversation: Callable[[int], list[Message]],
    sides: Mapping[str, Measurement],
    *,
    target_ms: float | None,
    rounds: int,
) -> list[Row]:
    """Measure the sides in turn for each size; the middle one has the target, the last one shows the growth."""
    found: list[Row] = []
    best = dict.fromkeys(sizes, 0.0)
    for size in sizes:
        messages = conversation(size)
        samples: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, measure in sides.items():
                samples[side].append(asyncio.run(measure(messages)))
        figures = {side: Figure(values) for side, values in samples.items()}
        best[size] = figures["ours"].best
        targets = []
        if size == sizes[1] and target_ms is not None:
            targets.append(Target("best", best[size], target_ms, "ms"))
        if size == sizes[2]:
            targets.append(Target("to half as many", best[size] / best[sizes[1]], LINEAR, "×"))
        found.append(Row(f"{size:,} messages", "ms", figures, targets))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure context-simple beside a bare list.")
    parser.add_argument("--quick", action="store_true", help="measure for seconds instead of a minute")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    rounds = 2 if arguments.quick else 7
    report = Report("context", None)
    growing = {"ours": growth, "floor": bare_growth}
    for name, conversation in {"chat": chat, "tool use": tool_use}.items():
        section = f"add a message and request, each time: {name}"
        report.add(section, rows(GROWTH, conversation, growing, target_ms=GROWTH_TARGET_MS, rounds=rounds))
    for name, conversation in {"chat": chat, "tool use": tool_use}.items():
        section = f"one compacting request: {name}"
        target_ms = COMPACTION_TARGET_MS
        report.add(section, rows(COMPACTION, conversation, {"ours": compaction}, target_ms=target_ms, rounds=rounds))
    section = "set a whole history and compact it: tool use"
    report.add(section, rows(COMPACTION, tool_use, {"ours": resumption}, target_ms=None, rounds=rounds))
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
