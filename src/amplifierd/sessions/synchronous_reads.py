"""Reading from an asynchronous store in plain code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def now_or_in_thread(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine returns; it runs on a loop of its own, in a thread where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(begin())
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(begin())).result()
