"""What a session tree may still use: one budget for a session and all its descendants.

Everything here happens in one event loop, between two awaits, so that fifty children that ask at once are answered one
after another and never get more together than there is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from amplifierd.exceptions import BudgetExhaustedError
from amplifierd.limits import LIMIT_NAMES, Limits

from .usage import ONE_TOOL_CALL, Usage

WARNING_SHARE = 0.8


@dataclass(frozen=True, eq=False, slots=True)
class Reservation:
    """What a provider call may use at most; a cost of None is unknown, and only its tokens are held back."""

    tokens: int
    cost_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class LimitState:
    """How far a limit is used up. `unpriced_tokens` have no known price, so no money was counted for them."""

    limit: str
    used: float
    allowed: float
    unpriced_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "limit": self.limit,
            "used": self.used,
            "allowed": self.allowed,
            "unpriced_tokens": self.unpriced_tokens,
        }


class TreeBudget:
    """The limits of a tree, and what its sessions used; every session of the tree in this process has the same one.

    `used` is what is known from before. Without limits it only counts.
    """

    def __init__(
        self, limits: Limits | None = None, used: Usage | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits, self._is_limited = limits or Limits(), bool(limits)
        self._used, self._seconds = used or Usage(), used.seconds if used else 0.0
        self._clock = clock
        self._reserved: set[Reservation] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._executing = 0
        self._counted_until = 0.0
        self._warned: set[str] = set()
        self.warnings()  # what is above the threshold from before was warned about then

    @property
    def limits(self) -> Limits:
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        """Put other limits in place; a call that waits is looked at again, and a raised limit warns again."""
        self._limits, self._is_limited = limits, bool(limits)
        self._warned &= {state.limit for state in self._states() if _is_near(state)}
        self._wake()

    @property
    def used(self) -> Usage:
        """Everything the tree has used, with the seconds up to now."""
        return replace(self._used, seconds=self.seconds)

    @property
    def seconds(self) -> float:
        """For how long turns of the tree have run up to now."""
        self._count_seconds()
        return self._seconds

    # --- turns and time

    def begin_turn(self, agent: str | None = None) -> AbstractContextManager[None]:
        """Count a turn; the clock runs while the returned context is open.

        It runs once, however many turns of the tree run beside each other.

        Raises:
            BudgetExhaustedError: there is no turn, or no time, left; nothing was begun.
        """
        self._require(turns=1)
        self._add(Usage(turns=1), agent)
        return self._running()

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._count_seconds()
        self._executing += 1
        try:
            yield
        finally:
            self._count_seconds()
            self._executing -= 1

    def _count_seconds(self) -> None:
        now, before = self._clock(), self._counted_until
        self._counted_until = now
        if self._executing and now > before:
            self._seconds += now - before

    # --- calls

    async def reserve(self, tokens: int, cost_usd: Decimal | None = None) -> Reservation:
        """Hold back what a provider call may use at most.

        Where only the reservations of other calls stand in the way, it waits until they are replaced by what was
        really used.

        Raises:
            BudgetExhaustedError: the call could exceed a limit, whatever the others come to.
        """
        wanted = Reservation(tokens, cost_usd)
        while True:
            self._require(total_tokens=tokens, cost_usd=cost_usd or 0)
            if self._fits_beside_others(wanted):
                self._reserved.add(wanted)
                return wanted
            await self._another_end()

    def settle(self, reservation: Reservation, used: Usage, agent: str | None = None) -> None:
        """Put what a call used in place of its reservation."""
        self._add(used, agent)
        self.release(reservation)

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back; one that was settled is left alone."""
        if reservation in self._reserved:
            self._reserved.discard(reservation)
            self._wake()

    def count_tool_call(self, agent: str | None = None) -> None:
        """Count a tool call that is about to begin.

        Raises:
            BudgetExhaustedError: there is none left.
        """
        self._require(tool_calls=1)
        self._add(ONE_TOOL_CALL, agent)

    def take_back(self, used: Usage, agent: str | None = None) -> None:
        """Count something no longer of which nothing is stored."""
        self._add(-used, agent)
        self._wake()

    def warnings(self) -> list[LimitState]:
        """Return the limits that have come near since this was last asked; each is returned once."""
        if not self._is_limited:
            return []
        near = [state for state in self._states() if state.limit not in self._warned and _is_near(state)]
        self._warned.update(state.limit for state in near)
        return near

    # --- the inside

    def _add(self, used: Usage, agent: str | None) -> None:
        self._used += used if agent is None else used.for_agent(agent)

    def _states(self) -> list[LimitState]:
        used = self.used
        return [
            LimitState(name, float(_used_of(used, name)), float(allowed), used.unpriced_tokens)
            for name in LIMIT_NAMES
            if (allowed := getattr(self._limits, name)) is not None
        ]

    def _require(self, **needs: Decimal | int) -> None:
        """Raise when what is needed is more than what is left; time needs no more than to be left."""
        if not self._is_limited:
            return
        used = self.used
        for name in LIMIT_NAMES:
            allowed = getattr(self._limits, name)
            if allowed is None:
                continue
            have, need = _used_of(used, name), needs.get(name, 0)
            if (have >= allowed) if name == "seconds" else (have + need > allowed):
                raise _exhausted(LimitState(name, float(have), float(allowed), used.unpriced_tokens), float(need))

    def _fits_beside_others(self, wanted: Reservation) -> bool:
        if not self._is_limited:
            return True
        limits, used = self._limits, self._used
        held = (*self._reserved, wanted)
        tokens = used.tokens.total + sum(one.tokens for one in held)
        cost = (used.cost_usd or 0) + sum((one.cost_usd or Decimal(0) for one in held), Decimal(0))
        return (limits.total_tokens is None or tokens <= limits.total_tokens) and (
            limits.cost_usd is None or cost <= limits.cost_usd
        )

    async def _another_end(self) -> None:
        """Wait until a reservation is given back or the limits change."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


def _used_of(used: Usage, limit: str) -> Decimal:
    match limit:
        case "cost_usd":
            return used.cost_usd or Decimal(0)
        case "total_tokens":
            return Decimal(used.tokens.total)
    return Decimal(getattr(used, limit))


def _is_near(state: LimitState) -> bool:
    return state.used >= state.allowed * WARNING_SHARE


def _exhausted(state: LimitState, need: float) -> BudgetExhaustedError:
    further = f", and the next call may take {need:g}" if state.limit in ("total_tokens", "cost_usd") and need else ""
    return BudgetExhaustedError(
        f"the limit {state.limit} = {state.allowed:g} of this session tree is reached: {state.used:g} used{further}",
        limit=state.limit,
        used=state.used,
        allowed=state.allowed,
        unpriced_tokens=state.unpriced_tokens,
        hint="raise the limit to continue",
    )
