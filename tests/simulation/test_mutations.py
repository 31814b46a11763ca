"""The simulation finds what it is there to find: each of these mistakes in the protocol, within a few seeds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).parent)]

from simulated_server import EPOCH
from simulation import simulate, tidy_up

from amplifier_system import supervisor
from amplifier_system.surroundings import time_ns
from amplifierd.session_store.postgres import members

_MOST_SEEDS = 120


# A process that is killed leaves coroutines in the middle of what they did, and nobody ends them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def tidied() -> Iterator[None]:
    yield
    tidy_up()


def _found(*only: str) -> str | None:
    """Return what the first seed says that finds something, with faults of some kinds alone."""
    for seed in range(_MOST_SEEDS):
        if violation := simulate(seed, only).violation:
            return violation
    return None


def test_a_lease_that_is_judged_by_a_local_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    list_all, fence_late = members.Members.list, members.Members.fence

    async def judged_here(self: members.Members) -> tuple[members.Member, ...]:
        ahead_s = time_ns() / 1e9 - EPOCH - asyncio.get_running_loop().time()
        found = await list_all(self)
        return tuple(replace(member, is_leased=member.lease_s > ahead_s) for member in found)

    async def fence(self: members.Members, member_id: str) -> bool:
        return await fence_late(self, member_id, by_operator=True)

    monkeypatch.setattr(members.Members, "list", judged_here)
    monkeypatch.setattr(members.Members, "fence", fence)

    violation = _found("crash")

    assert violation is not None
    assert "was fenced" in violation


def test_a_loop_that_no_one_restarts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_once(self: Any) -> None:
        work: Callable[[], Awaitable[None]] = self._work
        self._begun, self._is_running = 0.0, True
        self.beat_at = 1e9
        await work()

    monkeypatch.setattr(supervisor._Loop, "_run", run_once)

    violation = _found("hide_table")

    assert violation is not None
    assert "have not ended" in violation
