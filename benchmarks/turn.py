"""What a turn costs with each loop, and each tool call in it, beside a loop of bare asyncio.

A turn calls one tool K times, one call per response. Responses are built beforehand; context, provider and tool are the
same on both sides, and do next to nothing. Times are CPU times, since a turn that never waits is all work. Run it
with `make bench`, or alone:

    python benchmarks/turn.py [--quick] [--check] [loop-basic] [loop-streaming] [loop-events]
"""

import argparse
import asyncio
import gc
import importlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from _harness import REPOSITORY, Child, Figure, Report, Row, Target, answer_requests, in_turn, times

from amplifier_core import (
    ChatResponse,
    HookRegistry,
    HookResult,
    ModuleCoordinator,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    ToolResult,
)
from amplifier_core.events import ALL_EVENTS

LOOPS = {
    "loop-basic": "BasicOrchestrator",
    "loop-streaming": "StreamingOrchestrator",
    "loop-events": "EventDrivenOrchestrator",
}
CALLS = (0, 1, 10, 50)
HOOKS = (0, 5)

# For loop-basic. 60 µs, and 225 µs with five hooks, is what these come to where the bare loop takes 3 µs.
MOST_TIMES_BARE = {0: 20, 5: 75}
MOST_MICROSECONDS = {0: 60}  # of a turn without tool calls
MOST_GROWTH = 1.5  # of a call's cost late in a turn over its cost early in it
MOST_SLOWDOWN = 1.2  # of registering and unregistering a handler among a hundred over doing it alone
CROWD = 100
MOST_FOR_A_MODULE = 5  # µs that a module adds to a tool call that it does not care about
MODULES = (
    *("hooks-todo-reminder", "hooks-todo-display", "hooks-status-context", "hooks-streaming-ui"),
    *("hooks-session-naming", "hooks-routing", "hooks-deprecation"),
)

Turn = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    repetitions: int


FULL = Effort(rounds=12, repetitions=40)
QUICK = Effort(rounds=3, repetitions=10)


class Context:
    """Keeps messages in a list."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> Any:
        return list(self.messages)


class Provider:
    """Answers from a list."""

    name = "bench"

    def __init__(self, responses: list[ChatResponse]) -> None:
        self._responses = iter(responses)

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        return next(self._responses)

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


class Tool:
    name = "look"
    description = "Says that all is well."
    input_schema = {"type": "object", "properties": {"place": {"type": "integer"}}}  # noqa: RUF012 - as tools have it

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(success=True, output="all is well")


def responses(calls: int) -> list[ChatResponse]:
    """Return what the provider answers: `calls` tool calls, one after the other, then text."""
    asking = [
        ChatResponse(
            content=[ToolCallBlock(id=f"call_{place}", name="look", input={"place": place})],
            tool_calls=[ToolCall(id=f"call_{place}", name="look", arguments={"place": place})],
        )
        for place in range(calls)
    ]
    return [*asking, ChatResponse(content=[TextBlock(text="All is well everywhere.")])]


def prepared_turn(loop: str, hooks: int, calls: int) -> Callable[[], Turn]:
    """Return a function that sets up one turn; setting up is not measured."""
    sys.path.append(str(REPOSITORY / "modules" / loop))
    package = importlib.import_module(f"amplifier_module_{loop.replace('-', '_')}")
    orchestrator = getattr(package, LOOPS[loop])({})
    script = responses(calls)

    async def observe(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="continue")

    def prepare() -> Turn:
        coordinator = ModuleCoordinator()
        for event in ALL_EVENTS if hooks else ():
            for number in range(hooks):
                coordinator.hooks.register(event, observe, number, f"observer-{number}")
        providers, tools, context = {"bench": Provider(script)}, {"look": Tool()}, Context()
        state = (context, providers, tools, coordinator.hooks, coordinator)

        async def run() -> None:
            text = await orchestrator.execute("Is all well?", *state)
            if text != "All is well everywhere." or len(context.messages) != 2 * calls + 2:
                raise RuntimeError(f"the turn went wrong: {text!r}, {len(context.messages)} messages")

        return run

    return prepare


def prepared_bare_turn(calls: int) -> Callable[[], Turn]:
    """Return a function that sets up the same turn without anything around it."""
    script = responses(calls)

    def prepare() -> Turn:
        provider, tools, context = Provider(script), {"look": Tool()}, Context()

        async def run() -> None:
            await context.add_message({"role": "user", "content": "Is all well?"})
            while True:
                response = await provider.complete(await context.get_messages_for_request())
                await context.add_message({"role": "assistant", "content": response.content})
                if not response.tool_calls:
                    return
                for call in response.tool_calls:
                    result = await tools[call.name].execute(call.arguments)
                    message = {"role": "tool", "tool_call_id": call.id, "content": str(result.output)}
                    await context.add_message(message)

        return run

    return prepare


async def best_seconds(prepare: Callable[[], Turn], repetitions: int) -> float:
    """Return the CPU time of the fastest of several turns."""
    turns = [prepare() for _ in range(repetitions)]
    took_s = []
    gc.collect()
    for turn in turns:
        started_s = time.process_time()
        await turn()
        took_s.append(time.process_time() - started_s)
    return min(took_s)


def serve() -> None:
    """Answer requests such as `{"loop": "loop-basic", "hooks": 5, "calls": 10, "repetitions": 40}`."""
    prepared: dict[tuple[str | None, int, int], Callable[[], Turn]] = {}

    def answer(request: dict[str, Any]) -> float:
        key = (request["loop"], request["hooks"], request["calls"])
        if key not in prepared:
            loop, hooks, calls = key
            prepared[key] = prepared_bare_turn(calls) if loop is None else prepared_turn(loop, hooks, calls)
            runner.run(best_seconds(prepared[key], 5))
        return runner.run(best_seconds(prepared[key], request["repetitions"]))

    with asyncio.Runner() as runner:
        answer_requests(answer)


def compare(loops: list[str], *, effort: Effort, check: bool) -> int:
    report = Report("turn", None)
    with ExitStack() as stack:
        children = {
            side: stack.enter_context(Child([sys.executable, __file__, "--serve"])) for side in ("ours", "floor")
        }
        for loop in loops:
            for hooks in HOOKS:
                report.add(f"{loop}, {hooks} hooks", rows(report, children, loop, hooks, effort))
    report.add("registering and unregistering a handler", registration_rows(effort))
    report.add("a tool call that a module does not care about", module_rows(effort))
    return report.finish(check=check)


def rows(report: Report, children: dict[str, Child], loop: str, hooks: int, effort: Effort) -> Iterator[Row]:
    """Yield what turns of each length take, and what that comes to for one call."""
    best: dict[str, dict[int, float]] = {"ours": {}, "floor": {}}
    for calls in CALLS:
        request = {"hooks": hooks, "calls": calls, "repetitions": effort.repetitions}
        asked = {"ours": loop, "floor": None}
        sides = {side: partial(child.ask, loop=asked[side], **request) for side, child in children.items()}
        found = in_turn(report, f"{loop}, {hooks} hooks, {calls} calls", sides, effort.rounds)
        figures = {side: Figure([seconds * 1e6 for seconds in samples]) for side, samples in found.items()}
        judged = []
        if loop == "loop-basic" and not calls and hooks in MOST_MICROSECONDS:
            judged = [Target("ours", figures["ours"].best, MOST_MICROSECONDS[hooks], " µs")]
        yield Row(f"turn of {calls} tool calls", "µs", figures, judged)
        for side, figure in figures.items():
            best[side][calls] = figure.best
    early, late = (per_call(best, *span) for span in ((0, 10), (10, 50)))
    growth = late["ours"].best / early["ours"].best
    most = MOST_TIMES_BARE[hooks]
    targets = {
        "each call, from 0 to 10": [Target("ours/floor", times(early, "ours", "floor"), most, "×")],
        "each call, from 10 to 50": [
            Target("ours/floor", times(late, "ours", "floor"), most, "×"),
            Target("late/early", growth, MOST_GROWTH, "×"),
        ],
    }
    for (label, judged), figures in zip(targets.items(), (early, late), strict=True):
        yield Row(label, "µs", figures, judged if loop == "loop-basic" else [])


def registration_rows(effort: Effort) -> Iterator[Row]:
    """Yield what it takes to register a handler and take it away again, alone and among many, at every place."""
    alone = Figure([registration_seconds(0, 50) * 1e6 for _ in range(effort.rounds)])
    yield Row("with none present", "µs", {"ours": alone})
    for place, priority in {"first": -1, "in the middle": CROWD // 2, "last": CROWD}.items():
        among = Figure([registration_seconds(CROWD, priority) * 1e6 for _ in range(effort.rounds)])
        target = Target("among/alone", among.best / alone.best, MOST_SLOWDOWN, "×")
        yield Row(f"with {CROWD} present, {place}", "µs", {"ours": among}, [target])


def registration_seconds(present: int, priority: int, times: int = 2000) -> float:
    """Return the CPU time of registering a handler and unregistering it, with others present on the same event."""
    hooks = HookRegistry()
    for number in range(present):
        hooks.register("tool:pre", ignore, number, f"present-{number}")
    started_s = time.process_time()
    for _ in range(times):
        hooks.register("tool:pre", ignore, priority, "newcomer")()
    return (time.process_time() - started_s) / times


def module_rows(effort: Effort) -> Iterator[Row]:
    """Yield what each module adds to the events of a tool call that is none of its business."""
    for module_id in MODULES:
        samples = [asyncio.run(added_seconds(module_id)) * 1e6 for _ in range(effort.rounds)]
        figure = Figure([max(sample, 0.0) for sample in samples])
        yield Row(module_id, "µs", {"ours": figure}, [Target("ours", figure.best, MOST_FOR_A_MODULE, " µs")])


async def added_seconds(module_id: str, times: int = 2000) -> float:
    """Return the CPU time that a module adds to `tool:pre` and `tool:post` of one call, beside another handler."""
    sys.path.append(str(REPOSITORY / "modules" / module_id))
    package = importlib.import_module(f"amplifier_module_{module_id.replace('-', '_')}")
    call = {
        "tool_name": "look",
        "tool_call_id": "c",
        "tool_input": {"place": 1},
        "result": {"success": True, "output": 1},
    }
    spent: list[float] = []
    for is_mounted in (False, True):
        coordinator = ModuleCoordinator(display_system=Silent())
        for event in ("tool:pre", "tool:post"):
            coordinator.hooks.register(event, ignore, 0, "observer")
        if is_mounted:
            await package.mount(coordinator, {})
        started_s = time.process_time()
        for _ in range(times):
            await coordinator.hooks.emit("tool:pre", call)
            await coordinator.hooks.emit("tool:post", call)
        spent.append((time.process_time() - started_s) / times)
    return spent[1] - spent[0]


class Silent:
    """The display of a host that shows nothing."""

    def show_message(self, message: str, level: str, source: str = "hook") -> None: ...


async def ignore(event: str, data: dict[str, Any]) -> None:
    """Hear an event and say nothing."""


def per_call(best: dict[str, dict[int, float]], fewer: int, more: int) -> dict[str, Figure]:
    return {side: Figure([(turns[more] - turns[fewer]) / (more - fewer)]) for side, turns in best.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure a turn with each loop beside bare asyncio.")
    parser.add_argument("loops", nargs="*", metavar="loop", help=f"what to measure, default all: {[*LOOPS]}")
    parser.add_argument("--quick", action="store_true", help="measure for seconds instead of a minute")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)  # be the process of one side
    arguments = parser.parse_args()
    if unknown := set(arguments.loops) - LOOPS.keys():
        parser.error(f"unknown loop {', '.join(sorted(unknown))}; there are {', '.join(LOOPS)}")
    if arguments.serve:
        logging.disable(logging.CRITICAL)
        serve()
        return 0
    return compare(arguments.loops or [*LOOPS], effort=QUICK if arguments.quick else FULL, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
