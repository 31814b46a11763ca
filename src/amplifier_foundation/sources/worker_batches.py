"""Small blocking jobs, several to a worker thread: a thread of its own would cost more than such a job."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from amplifier_system.tasks import start_task

T = TypeVar("T")

_BATCH = 32


class WorkerBatches(Generic[T]):
    """Runs blocking jobs off the event loop; those that come at the same time share worker threads."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, list[tuple[Callable[[], T], asyncio.Future[T]]]] = (
            WeakKeyDictionary()
        )
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, job: Callable[[], T]) -> T:
        """Return the job's result, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        if not waiting:
            loop.call_soon(self._start, loop)  # after every caller that is ready now has added its job
        waiting.append((job, future))
        return await future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._waiting.pop(loop)
        for begin in range(0, len(jobs), _BATCH):
            task = start_task(_run_batch(jobs[begin : begin + _BATCH]))
            self._running.add(task)
            task.add_done_callback(self._running.discard)


async def _run_batch(jobs: list[tuple[Callable[[], T], "asyncio.Future[T]"]]) -> None:
    try:
        deliveries = await asyncio.to_thread(lambda: [_do(job, future) for job, future in jobs])
        for deliver in deliveries:
            deliver()
    finally:
        for _, future in jobs:
            future.cancel()  # without a thread there is no result; no one is left waiting for one


def _do(job: Callable[[], T], future: "asyncio.Future[T]") -> Callable[[], None]:
    """Run a job and return what tells its caller, on the event loop, how it went."""
    try:
        result = job()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
        failure = error
        return lambda: None if future.done() else future.set_exception(failure)
    return lambda: None if future.done() else future.set_result(result)
