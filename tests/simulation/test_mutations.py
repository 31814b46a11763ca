"""The simulation finds what it is there to find: each of these mistakes in the protocol, within a few seeds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from simulated_server import EPOCH
from simulation import simulate, tidy_up

from amplifier_system import tasks
from amplifier_system.surroundings import time_ns
from amplifierd.store.cursor import Cursor
from amplifierd.store.postgres import members, row_changes
from amplifierd.store.postgres.held_sessions import FENCE

_MOST_SEEDS = 120


# A process that is killed leaves coroutines in the middle of what they did, and nobody ends them.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("frozen_past"),
]


@pytest.fixture(autouse=True)
def tidied() -> Iterator[None]:
    yield
    tidy_up()


def _found(first: int, *only: str) -> str | None:
    """Return what is wrong in the first seed that finds something, with faults of some kinds alone.

    The `first` one that is tried is known to find it. Where a change makes something else of it, a later one does.
    """
    for seed in range(first, first + _MOST_SEEDS):
        if violation := simulate(seed, only).violation:
            return violation
    return None


def test_a_write_that_no_fence_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    open_ = "held AS (SELECT session FROM holds WHERE session = %(session)s)"
    unfenced = {lines: text.replace(FENCE, open_) for lines, text in row_changes._APPEND.items()}
    monkeypatch.setattr(row_changes, "_APPEND", unfenced)

    violation = _found(15, "pause", "cut_off")

    assert violation is not None
    assert re.search("was written by .* while .* held the session", violation)


def test_a_number_that_is_given_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_too_early(self: Cursor, epoch: int) -> Cursor:
        return Cursor(max(epoch, self.epoch + 1), max(self.seq - 1, 0))

    monkeypatch.setattr(Cursor, "resumed", one_too_early)

    violation = _found(0, "crash")

    assert violation is not None
    assert re.search(r"event (\d+) was written after \1", violation)


def test_a_cursor_that_does_not_tell_pieces_apart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cursor, "__str__", lambda cursor: f"{cursor.epoch}-{cursor.seq}.0")

    violation = _found(0, "crash")

    assert violation is not None
    assert re.search("stream .* shows ", violation)


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

    violation = _found(0, "crash")

    assert violation is not None
    assert "was fenced" in violation


def test_a_loop_that_no_one_restarts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_once(self: Any) -> None:
        work: Callable[[], Awaitable[None]] = self._work
        self._begun, self._is_running = 0.0, True
        self.beat_at = 1e9
        await work()

    monkeypatch.setattr(tasks._Loop, "_run", run_once)

    violation = _found(0, "hide_table")

    assert violation is not None
    assert "have not ended" in violation or "there is left" in violation
