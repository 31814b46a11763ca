"""Work that is cancelled wherever it waits, in one place after the other, and what must be closed then."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from amplifier_core.testing import wait_for

_MOST_PLACES = 300


class _CancelledAt:
    """Work whose task is cancelled where it waits for the `place`th time."""

    def __init__(self, work: Awaitable[Any], place: int) -> None:
        self._work, self._place = work, place
        self.waits = 0

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self._work.__await__()
        go_on: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                awaited = go_on()
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits == self._place:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - it is the work's
                go_on = partial(steps.throw, error)
            else:
                go_on = partial(next, steps)


async def cancelled_everywhere(work: Callable[[], Awaitable[Any]]) -> int:
    """Do a piece of work again and again, each time cancelled one wait later, until it gets to its end.

    Returns how often it was cancelled. Fails when that leaves a descriptor open; a file that is only closed because
    no one holds it any more is a warning, and so fails as well.
    """
    await work()  # what is opened once, at the first use, stays open
    gc.collect()
    gc.freeze()  # so that only what a cancellation leaves is looked through
    for place in range(1, _MOST_PLACES):
        before = _descriptors()
        interrupted = _CancelledAt(work(), place)
        outcome = await asyncio.gather(_awaited(interrupted), return_exceptions=True)
        gc.collect()
        closed = await wait_for(lambda before=before: not _descriptors().keys() - before.keys(), timeout=5)
        assert closed, f"left open by a cancellation at wait {place}: {_descriptors().items() - before.items()}"
        if interrupted.waits < place:
            assert not isinstance(outcome[0], BaseException), outcome[0]
            return place - 1
        assert isinstance(outcome[0], asyncio.CancelledError), f"at wait {place} it came to {outcome[0]!r}"
    raise AssertionError(f"it waits more than {_MOST_PLACES} times")


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _descriptors() -> dict[str, str]:
    found = {}
    for number in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that the directory is listed with
            found[number.name] = str(number.readlink())
    return found
