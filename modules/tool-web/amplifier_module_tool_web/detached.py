"""Blocking work in a thread that need not be waited for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def detached(name: str, work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own and return what it returns; a caller that is cancelled goes at once.

    The thread does not keep the process from ending, either.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - it is passed to the waiting task
            outcome.set_exception(exc)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(outcome)
