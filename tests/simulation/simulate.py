"""Run seeds of the simulated cluster, and print those that fail.

`python tests/simulation/simulate.py --seeds 10000` runs many, in as many processes as are asked for; `--seed 17` runs
one and prints everything that happened in it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain

from simulation import Outcome, simulate, tidy_up

_TOGETHER = 25
_LINES = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and print what happened")
    parser.add_argument("--seeds", type=int, default=200, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        outcome = simulate(arguments.seed)
        _say(*outcome.log)
        return _said(outcome)
    return _run_all(range(arguments.first, arguments.first + arguments.seeds), arguments.processes)


def _run_all(seeds: range, processes: int) -> int:
    began, failed, turns, faults = time.monotonic(), 0, 0, 0
    parts = [seeds[first : first + _TOGETHER] for first in range(0, len(seeds), _TOGETHER)]
    with ProcessPoolExecutor(processes) as pool:
        for outcome in chain.from_iterable(pool.map(_run, parts)):
            turns, faults = turns + outcome.turns, faults + outcome.faults
            if outcome.violation is not None:
                failed += 1
                _say(*outcome.log[-_LINES:])
                _said(outcome)
    took = time.monotonic() - began
    _say(f"{len(seeds)} seeds, {turns} turns, {faults} faults, {failed} failed, {took:.0f} s")
    return 1 if failed else 0


def _run(seeds: Sequence[int]) -> list[Outcome]:
    outcomes = [simulate(seed) for seed in seeds]
    tidy_up()
    return outcomes


def _said(outcome: Outcome) -> int:
    if outcome.violation is None:
        _say(f"seed {outcome.seed}: nothing was wrong in {outcome.seconds:.0f} s and {outcome.steps} steps")
        return 0
    _say(f"seed {outcome.seed} FAILED: {outcome.violation}")
    _say(f"  again: .venv/bin/python tests/simulation/simulate.py --seed {outcome.seed}")
    return 1


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
