"""Commands that are being started: until a program is known, no one can end it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Starts:
    """The starts of one session that are not over yet."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Start a program in this block, and note it where it is ended from."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def wait(self) -> None:
        """Wait until every start is over."""
        await self._none.wait()
