"""What the guards cost: the check of a path, the approval gate in a turn, and a command in the sandbox.

The floor is `os.path.realpath` alone, the same turn without a gate, and the tool with `sandbox: off`. Turns with and
without the gate take turns, and each pair is compared: what else the machine does hits both. Run it with `make bench`,
or alone:

    python benchmarks/guards.py [--quick] [--check]
"""

import argparse
import asyncio
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, Target, in_turn, times

sys.path[:0] = [str(REPOSITORY / "modules" / module) for module in ("tool-bash", "loop-basic", "hooks-approval")]

from amplifier_module_hooks_approval import mount as mount_guard  # noqa: E402
from amplifier_module_loop_basic import BasicOrchestrator  # noqa: E402
from amplifier_module_tool_bash import BashTool  # noqa: E402
from turn import Context, Provider, Tool, responses  # noqa: E402

from amplifier_core import HookResult, ModuleCoordinator  # noqa: E402
from amplifier_core.events import ALL_EVENTS  # noqa: E402
from amplifier_kit.consent import CONSENT, Consent  # noqa: E402
from amplifier_kit.sandbox.availability import find_sandbox  # noqa: E402
from amplifier_system.policy.session_policy import SessionPolicy  # noqa: E402

ADDED_MS = 30.0
CHECK_US = 20.0
CHECK_TIMES_BARE = 1.0
GATE_PERCENT = 10.0
CALLS, HOOKS, TURNS = 50, 5, 8


class Session:
    """As much of a coordinator as the tool looks at: a guard that says the same of every call."""

    def __init__(self, consent: Consent) -> None:
        self._consent = consent

    def get_capability(self, name: str) -> Any:
        return (lambda tool_name, tool_input: self._consent) if name == CONSENT else None


def timed(folder: str, sandbox: str, consent: Consent) -> Callable[[], float]:
    """Return what runs `true` and says how long that took."""
    tool = BashTool({"working_dir": folder, "sandbox": sandbox}, Session(consent))

    async def run() -> float:
        started_s = time.perf_counter()
        result = await tool.execute({"command": "true"})
        elapsed_s = time.perf_counter() - started_s
        if not result.success:
            raise MeasurementFailed(str(result.output))
        return elapsed_s

    return lambda: asyncio.run(run())


def measure_sandbox(report: Report, folder: str, rounds: int) -> None:
    rows = []
    for label, consent in (("no one was asked", Consent.UNASKED), ("approved", Consent.APPROVED)):
        sides = {"ours": timed(folder, "required", consent), "floor": timed(folder, "off", consent)}
        samples = in_turn(report, f"true, {label}", sides, rounds)
        figures = {side: Figure([one * 1e3 for one in taken]) for side, taken in samples.items() if taken}
        added = figures["ours"].best - figures["floor"].best if len(figures) == 2 else None
        rows.append(Row(f"true, {label}", "ms", figures, [Target("added", added, ADDED_MS, "ms")]))
    report.add("the sandbox of a command", rows)


def measure_policy(report: Report, folder: str, rounds: int) -> None:
    """Check a file five directories below the working directory, which is several below the root itself."""
    file = Path(folder) / "src/package/inner/deeper/still/file.py"
    file.parent.mkdir(parents=True)
    file.touch()
    policy = SessionPolicy.of(working_dir=folder)
    rows = []
    for label, check in {"may it be read": policy.check_read, "may it be written": policy.check_write}.items():
        sides = {"ours": repeated(check, str(file)), "floor": repeated(os.path.realpath, str(file))}
        samples = in_turn(report, label, sides, rounds)
        figures = {side: Figure([one * 1e6 for one in taken]) for side, taken in samples.items() if taken}
        best = figures["ours"].best if "ours" in figures else None
        bare = Target("ours/floor", times(figures, "ours", "floor"), CHECK_TIMES_BARE, "×")
        rows.append(Row(label, "µs", figures, [Target("ours", best, CHECK_US, "µs"), bare]))
    report.add("the policy about an existing file", rows)


def repeated(check: Callable[[str], object], path: str, repetitions: int = 50) -> Callable[[], float]:
    """Return what says how much CPU time one of many checks takes."""

    def run() -> float:
        started_s = time.process_time()
        for _ in range(repetitions):
            check(path)
        return (time.process_time() - started_s) / repetitions

    return run


class Reading(Tool):
    """A tool that no one is asked about."""

    effects = frozenset({"read"})


async def prepared_turn(*, has_gate: bool, rules: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """Return a turn of loop-basic with many calls of one tool, each heard by observing hooks."""
    coordinator = ModuleCoordinator()
    await coordinator.mount("tools", Reading())

    async def observe(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="continue")

    for event in ALL_EVENTS:
        for number in range(HOOKS):
            coordinator.hooks.register(event, observe, number, f"observer-{number}")
    if has_gate:
        await mount_guard(coordinator, {"audit": {"enabled": False}, **rules})
    context, providers = Context(), {"bench": Provider(responses(CALLS))}
    orchestrator, tools = BasicOrchestrator({}), coordinator.get("tools")

    async def run() -> None:
        await orchestrator.execute("Is all well?", context, providers, tools, coordinator.hooks, coordinator)
        if len(context.messages) != 2 * CALLS + 2 or "all is well" not in str(context.messages[-2]):
            raise MeasurementFailed("the turn went wrong")

    return run


async def seconds_per_call(*, has_gate: bool, rules: dict[str, Any]) -> float:
    turn = await prepared_turn(has_gate=has_gate, rules=rules)
    started_s = time.process_time()
    await turn()
    return (time.process_time() - started_s) / CALLS


async def best_pair(rules: dict[str, Any]) -> dict[str, float]:
    """Return the best of a few turns with the gate and of as many without, taken in turn."""
    best = {"ours": float("inf"), "floor": float("inf")}
    for number in range(TURNS):
        for side in ("ours", "floor") if number % 2 else ("floor", "ours"):
            best[side] = min(best[side], await seconds_per_call(has_gate=side == "ours", rules=rules))
    gc.collect()
    return best


async def measure_gate(report: Report, rounds: int) -> None:
    """Compare pairs of turns, with the gate and without; the median of the pairs counts."""
    rows = []
    by_rule = {"tools": {"look": {"require_approval": True}}, "auto_approve": True}
    gc.disable()
    for label, rules in {"no one is asked": {}, "approved by configuration": by_rule}.items():
        await best_pair(rules)  # which warms up
        pairs = [await best_pair(rules) for _ in range(rounds)]
        figures = {side: Figure([pair[side] * 1e6 for pair in pairs]) for side in ("ours", "floor")}
        added = (statistics.median(pair["ours"] / pair["floor"] for pair in pairs) - 1) * 100
        rows.append(Row(label, "µs", figures, [] if rules else [Target("added", added, GATE_PERCENT, "%")]))
    gc.enable()
    report.add(f"the gate, per tool call with {HOOKS} hooks", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the guards cost.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("guards", peer=None)
    with tempfile.TemporaryDirectory() as folder:
        measure_policy(report, folder, 20 if arguments.quick else 200)
    asyncio.run(measure_gate(report, 10 if arguments.quick else 60))
    if find_sandbox() is None:
        print("No sandbox works on this machine: commands in it are not measured.")
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure_sandbox(report, folder, 20 if arguments.quick else 100)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
