"""What the guards cost: the check of a path, the approval gate in a turn, a command in the sandbox, and its proxy.

The floor is `os.path.realpath` alone, the same turn without a gate, and the tool with `sandbox: off`. Turns with and
without the gate take turns, and each pair is compared: what else the machine does hits both. Run it with `make bench`,
or alone:

    python benchmarks/guards.py [--quick] [--check]
"""

import argparse
import asyncio
import gc
import http.server
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, Target, in_turn, times

sys.path[:0] = [str(REPOSITORY / "modules" / module) for module in ("tool-bash", "loop-basic", "hooks-approval")]

from amplifier_module_hooks_approval import mount as mount_guard  # noqa: E402
from amplifier_module_loop_basic import BasicOrchestrator  # noqa: E402
from amplifier_module_tool_bash import BashTool  # noqa: E402
from amplifier_module_tool_bash.comparison import RunningFiles  # noqa: E402
from turn import Context, Provider, Tool, responses  # noqa: E402

from amplifier_core import HookResult, ModuleCoordinator  # noqa: E402
from amplifier_core.events import ALL_EVENTS  # noqa: E402
from amplifier_kit.approval import CONSENT, Consent  # noqa: E402
from amplifier_kit.sandbox.availability import find_sandbox  # noqa: E402
from amplifier_kit.sandbox.limits import Confinement  # noqa: E402
from amplifier_kit.sandbox.permissions import Permissions  # noqa: E402
from amplifier_kit.sandbox.program import Program  # noqa: E402
from amplifier_system.policy.session_policy import SessionPolicy  # noqa: E402

ADDED_MS = 30.0
HIDING_MS = 6.0
CHECK_US = 20.0
COMPARISON_MS, FILES = 60.0, 20_000
CHECK_TIMES_BARE = 1.0
GATE_PERCENT = 10.0
PROXY_START_MS = 20.0
PROXY_CONNECT_MS = 2.0
SERVER = "127.0.0.2"  # this machine's, but not the loopback address that a command finds inside
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
    rows.append(measure_hiding(report, folder, rounds))
    report.add("the sandbox of a command", rows)


def measure_hiding(report: Report, folder: str, rounds: int) -> Row:
    """Compare a program from which secret places are hidden by overlays with one that sees all."""
    where = Path(folder).resolve()
    hidden = Permissions.of(None, where).hidden

    bare: dict[str, Any] = {"environment": {}, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def timed_start(places: tuple[Path, ...]) -> Callable[[], float]:
        async def run() -> float:
            started_s = time.perf_counter()
            confinement = Confinement(where, hidden=places)
            program = await Program.start(["true"], confinement, sandbox=find_sandbox(), **bare)
            if await program.wait() != 0:
                raise MeasurementFailed("true did not run")
            return time.perf_counter() - started_s

        return lambda: asyncio.run(run())

    label = "hiding by overlay"
    samples = in_turn(report, label, {"ours": timed_start(hidden), "floor": timed_start(())}, rounds)
    figures = {side: Figure([one * 1e3 for one in taken]) for side, taken in samples.items() if taken}
    added = figures["ours"].best - figures["floor"].best if len(figures) == 2 else None
    return Row(label, "ms", figures, [Target("added", added, HIDING_MS, "ms")])


class BoundSession(Session):
    """A session whose commands are bound to hosts, all of which may be reached."""

    def __init__(self, folder: str, commands: str) -> None:
        super().__init__(Consent.APPROVED)
        rules = {"network": {"allow": ["*", "private", SERVER], "commands": commands}}
        self._policy = SessionPolicy.of(rules, working_dir=folder)

    def get_capability(self, name: str) -> Any:
        return self._policy if name == "session.policy" else super().get_capability(name)


def connecting(folder: str, commands: str, port: int) -> Callable[[], float]:
    """Return what says how long the first connection of a command to a server took."""
    tool = BashTool({"working_dir": folder, "sandbox": "required"}, BoundSession(folder, commands))
    command = f"curl -sS -o /dev/null -w '%{{time_starttransfer}}' http://{SERVER}:{port}/"

    async def run() -> float:
        result = await tool.execute({"command": command})
        if not result.success:
            raise MeasurementFailed(str(result.output))
        return float(result.output["stdout"])

    return lambda: asyncio.run(run())


def starting(folder: str, commands: str) -> Callable[[], float]:
    """Return what says how long `true` took in a sandbox, with a proxy or without."""
    tool = BashTool({"working_dir": folder, "sandbox": "required"}, BoundSession(folder, commands))

    async def run() -> float:
        started_s = time.perf_counter()
        result = await tool.execute({"command": "true"})
        if not result.success:
            raise MeasurementFailed(str(result.output))
        return time.perf_counter() - started_s

    return lambda: asyncio.run(run())


def measure_proxy(report: Report, folder: str, rounds: int) -> None:
    """Compare commands that are bound to hosts with commands that have the machine's network."""
    server = http.server.ThreadingHTTPServer((SERVER, 0), QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    rows = []
    try:
        for label, most_ms, side in (
            ("the start of a command", PROXY_START_MS, lambda commands: starting(folder, commands)),
            ("its first connection", PROXY_CONNECT_MS, lambda commands: connecting(folder, commands, port)),
        ):
            samples = in_turn(report, label, {"ours": side("hosts"), "floor": side("open")}, rounds)
            figures = {name: Figure([one * 1e3 for one in taken]) for name, taken in samples.items() if taken}
            added = figures["ours"].best - figures["floor"].best if len(figures) == 2 else None
            rows.append(Row(label, "ms", figures, [Target("added", added, most_ms, "ms")]))
    finally:
        server.shutdown()
        server.server_close()
    report.add("the proxy of a command that is bound to hosts", rows)


class QuietHandler(http.server.BaseHTTPRequestHandler):
    """Answers every request with nothing."""

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


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


def measure_comparison(report: Report, folder: str, rounds: int) -> None:
    """Compare the running places of a working directory with many files, as after a command."""
    for number in range(FILES):
        file = Path(folder) / f"src/{number // 100}/{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (Path(folder) / "AGENTS.md").write_text("Be kind.\n")
    before = RunningFiles.of([Path(folder)])

    def compare() -> float:
        started_s = time.perf_counter()
        if before.changes(RunningFiles.of([Path(folder)], before)):
            raise MeasurementFailed("nothing had changed")
        return time.perf_counter() - started_s

    samples = in_turn(report, "running places", {"ours": compare}, rounds)
    figure = Figure([one * 1e3 for one in samples["ours"]])
    target = Target("ours", figure.best, COMPARISON_MS, "ms")
    report.add(f"the comparison of running places, {FILES} files", [Row("compare", "ms", {"ours": figure}, [target])])


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
    with tempfile.TemporaryDirectory() as folder:
        measure_comparison(report, folder, 10 if arguments.quick else 50)
    asyncio.run(measure_gate(report, 10 if arguments.quick else 60))
    if find_sandbox() is None:
        print("No sandbox works on this machine: commands in it are not measured.")
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure_sandbox(report, folder, 20 if arguments.quick else 100)
            measure_proxy(report, folder, 20 if arguments.quick else 100)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
