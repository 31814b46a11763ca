"""Questions to the person who types: the next line that is entered is the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Questions:
    """Asks one question at a time. `show` puts it where one types, an empty text takes it away."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._answer: asyncio.Future[str] | None = None
        self._asking = asyncio.Lock()

    async def ask(self, question: str) -> str:
        """Put a question and return the answer.

        Raises:
            EOFError: the person wants to stop.
        """
        async with self._asking:
            self._answer = asyncio.get_running_loop().create_future()
            self._show(question)
            try:
                return await self._answer
            finally:
                self._answer = None
                self._show("")

    def take(self, text: str) -> bool:
        """Take a line as the answer, and say whether there is a question."""
        if self._answer is None:
            return False
        if not self._answer.done():
            self._answer.set_result(text.strip())
        return True

    def refuse(self) -> None:
        """Leave a question that waits without an answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError())
