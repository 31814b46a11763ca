"""How many requests of a provider are in flight at once, over all its instances in one event loop."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from amplifier_kit.types import EventData

from .events import ProviderEvents

CONCURRENCY = "provider:concurrency"

_gates: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], _Gate]]" = WeakKeyDictionary()


class _Gate:
    """The places of one provider and one limit."""

    def __init__(self, limit: int) -> None:
        self.places = asyncio.Semaphore(limit)
        self.active = 0
        self.waiting = 0


class ConcurrencyGate:
    """Lets at most `limit` attempts of a provider run at once; 0 lets all of them.

    Instances with the same limit share their places, those with different limits do not know each other.
    """

    def __init__(self, provider: str, limit: int, events: ProviderEvents) -> None:
        self._provider = provider
        self._limit = limit
        self._events = events

    @asynccontextmanager
    async def place(self, model: str) -> AsyncIterator[None]:
        """Hold a place for one attempt, not for the time between two of them."""
        if self._limit <= 0:
            yield
            return
        gates = _gates.setdefault(asyncio.get_running_loop(), {})
        gate = gates.setdefault((self._provider, self._limit), _Gate(self._limit))
        gate.waiting += 1
        try:
            await gate.places.acquire()
        finally:
            gate.waiting -= 1
        gate.active += 1
        try:
            await self._events.emit(CONCURRENCY, self.state(model))
            yield
        finally:
            gate.active -= 1
            gate.places.release()

    def state(self, model: str) -> EventData:
        """Return how busy the gate is, as events tell it."""
        gate = _gates.get(asyncio.get_running_loop(), {}).get((self._provider, self._limit))
        return {
            "provider": self._provider,
            "model": model,
            "active_requests": gate.active if gate else 0,
            "waiting_requests": gate.waiting if gate else 0,
            "max_concurrent": self._limit,
            "process_id": os.getpid(),
        }
