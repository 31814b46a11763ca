"""One piece of work, shared by all who ask for it at the same time."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from amplifier_system.tasks import finished, start_task

T = TypeVar("T")


class SharedTasks(Generic[T]):
    """Runs work by key; while it runs, others who ask for the key wait for the same result or error.

    One caller's cancellation does not disturb the others; the work itself ends when no one waits for it any more, and
    the last one to give up waits until it has.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, tuple[asyncio.Task[T], set[object]]] = {}

    async def run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if key not in self._running:
            self._running[key] = start_task(work()), set()
        task, waiting = self._running[key]
        me = object()
        waiting.add(me)
        try:
            return await asyncio.shield(task)
        finally:
            waiting.discard(me)
            if not waiting or task.done():
                if self._running.get(key, (None,))[0] is task:
                    del self._running[key]
                task.cancel()
                await finished(task)  # a caller that is interrupted leaves nothing running
