"""What the guards cost: a command in the sandbox against the same command without.

The floor is the tool with `sandbox: off`. Run it with `make bench`, or alone:

    python benchmarks/guards.py [--quick] [--check]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from _harness import REPOSITORY, Figure, MeasurementFailed, Report, Row, Target, in_turn

sys.path[:0] = [str(REPOSITORY / "modules" / "tool-bash")]

from amplifier_module_tool_bash import BashTool  # noqa: E402

from amplifier_kit.consent import CONSENT, Consent  # noqa: E402
from amplifier_kit.sandbox.availability import find_sandbox  # noqa: E402

ADDED_MS = 30.0


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


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the guards cost.")
    parser.add_argument("--quick", action="store_true", help="measure for a few seconds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    report = Report("guards", peer=None)
    if find_sandbox() is None:
        print("No sandbox works on this machine: commands in it are not measured.")
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure_sandbox(report, folder, 20 if arguments.quick else 100)
    return report.finish(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
