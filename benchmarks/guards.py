"""What the guards cost: a command in the sandbox against the same command without, and the check of a path.

The floor is the tool with `sandbox: off`, and `os.path.realpath` alone. Run it with `make bench`, or alone:

    python benchmarks/guards.py [--quick] [--check]
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, Target, in_turn

sys.path[:0] = [str(REPOSITORY / "modules" / "tool-bash")]

from amplifier_module_tool_bash import BashTool  # noqa: E402

from amplifier_kit.consent import CONSENT, Consent  # noqa: E402
from amplifier_kit.sandbox.availability import find_sandbox  # noqa: E402
from amplifier_system.policy.session_policy import SessionPolicy  # noqa: E402

ADDED_MS = 30.0
CHECK_US = 20.0


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
    for label, consent in (("nobody was asked", Consent.UNASKED), ("approved", Consent.APPROVED)):
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
        rows.append(Row(label, "µs", figures, [Target("ours", best, CHECK_US, "µs")]))
    report.add("the policy about an existing file", rows)


def repeated(check: Callable[[str], object], path: str, times: int = 50) -> Callable[[], float]:
    """Return what says how much CPU time one of many checks takes."""

    def run() -> float:
        started_s = time.process_time()
        for _ in range(times):
            check(path)
        return (time.process_time() - started_s) / times

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the guards cost.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("guards", peer=None)
    with tempfile.TemporaryDirectory() as folder:
        measure_policy(report, folder, 20 if arguments.quick else 200)
    if find_sandbox() is None:
        print("No sandbox works on this machine: commands in it are not measured.")
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure_sandbox(report, folder, 20 if arguments.quick else 100)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
