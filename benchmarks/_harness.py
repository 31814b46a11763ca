"""What the benchmarks share: processes that answer measurements, the peer's environment, and the report.

A benchmark runs the same measuring code on several sides (`ours`, `peer`, a bare `floor`), each in a process of its
own, and takes the sides in turn, so that whatever else the machine does hits all of them alike.
"""

import json
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

REPOSITORY = Path(__file__).resolve().parent.parent
PEER_DISTRIBUTION = "amplifier-core"
PEER_PYTHON_VARIABLE = "AMPLIFIER_PEER_PYTHON"
PEER_REQUIREMENTS = Path(__file__).with_name("peer-requirements.txt")

Side = Literal["ours", "peer", "floor"]


class MeasurementFailed(Exception):
    """A side could not be measured; the message says why."""


# --- figures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figure:
    """What one side needed in each round."""

    samples: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def __mul__(self, factor: float) -> Self:
        return type(self)(tuple(sample * factor for sample in self.samples))

    def __sub__(self, base: Self) -> Self:
        """Take away what the same rounds needed without the work."""
        return type(self)(tuple(a - b for a, b in zip(self.samples, base.samples, strict=True)))


Figures = Mapping[Side, Figure]


def in_turn[S: str](sides: Mapping[S, Callable[[], float]], rounds: int, report: "Report") -> dict[S, Figure]:
    raise NotImplementedError
