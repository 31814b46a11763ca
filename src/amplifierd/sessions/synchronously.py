"""Reading from an asynchronous store in plain code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def now_or_in_thread(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine returns. One that has to wait is begun again on a loop of its own, in a thread."""
    coroutine = begin()
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(begin())).result()
