"""The task in which a turn runs, and its dealings with those who wait for it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from amplifier_system.tasks import start_task

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TurnTask:
    """Runs work in a task of its own, which puts two things into the hands of that work.

    A cancellation of the caller does not reach it inside `with turn_task:`. What is done there is done to its end, and
    the cancellation is raised afterwards; only `with turn_task.interruptible:` lets it through meanwhile. And what it
    says is handed to the reader of a stream piece by piece, at the reader's pace.
    """

    def __init__(self) -> None:
        self._fragments: asyncio.Queue[str | None] | None = None
        self.holds = 0  # how many `with turn_task:` are open
        self._is_due = False
        self._was_passed_on = False
        self._end: asyncio.Future[None] | None = None  # what the caller waits for

    # --- for the caller

    async def run(self, work: Coroutine[object, None, T]) -> T:
        """Run `work` and return its result."""
        task = start_task(work)
        return await self._end_of(task)

    async def stream(self, work: Coroutine[object, None, object]) -> AsyncGenerator[str, None]:
        """Run `work` and yield what it says; a reader that leaves cancels it."""
        fragments = self._fragments = asyncio.Queue()
        task = start_task(work)
        task.add_done_callback(lambda _: fragments.put_nowait(None))
        interruption: BaseException | None = None
        try:
            while (fragment := await fragments.get()) is not None:
                yield fragment
                fragments.task_done()
        except (asyncio.CancelledError, GeneratorExit) as exc:
            interruption = exc
            self._cancel(task)
        await self._end_of(task, interruption)

    # --- for the work

    @property
    def is_read(self) -> bool:
        """True if anyone reads what is said."""
        return self._fragments is not None

    async def say(self, text: str) -> None:
        """Hand a piece of text to the reader, if there is one, and wait until it asks for more."""
        if self._fragments is not None:
            self._fragments.put_nowait(text)
            await self._fragments.join()

    def check(self) -> None:
        """Raise a cancellation that waits, or one that was let through and got lost on the way."""
        if self._is_due or self._was_passed_on:
            self._is_due = False
            raise asyncio.CancelledError

    def end(self, _: object = None) -> None:
        """Say that nothing is left to do: the caller is woken now, and not by the task once that is done."""
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    def __enter__(self) -> None:
        self.holds += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.holds -= 1
        if self._is_due and not self.holds:
            self._is_due = False
            if kind is None or issubclass(kind, Exception):
                raise asyncio.CancelledError

    @property
    def interruptible(self) -> "_Interruptible":
        """Inside of `with turn_task:`, a context in which cancellations are let through all the same."""
        return _Interruptible(self)

    async def _end_of(self, task: asyncio.Task[T], interruption: BaseException | None = None) -> T:
        """Wait for the end, however often the waiting is cancelled, and return or raise what came of it."""
        task.add_done_callback(self.end)
        while not task.done():
            self._end = asyncio.get_running_loop().create_future()
            try:
                await self._end
            except asyncio.CancelledError as exc:
                interruption = exc
                self._cancel(task)
            except GeneratorExit:  # this coroutine is being closed and may not wait any more
                task.cancel()
                raise
        if interruption is None:
            return task.result()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("the cancelled turn ended with an error", exc_info=error)
        raise interruption

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        if self.holds:
            self._is_due = True
        else:
            self._was_passed_on = True
            task.cancel()


class _Interruptible:
    """Lets cancellations through, and raises at its end one that got lost in what ran there."""

    __slots__ = ("_holds", "_turn_task")

    def __init__(self, turn_task: TurnTask) -> None:
        self._turn_task = turn_task
        self._holds = turn_task.holds

    def __enter__(self) -> None:
        self._turn_task.check()
        self._turn_task.holds = 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._turn_task.holds = self._holds
        if kind is None:
            self._turn_task.check()
