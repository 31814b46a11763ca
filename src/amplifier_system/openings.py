"""Something that is about to be opened: awaited, or entered with `async with`, which also closes it."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Opening(Coroutine[Any, Any, T], Generic[T]):
    """`opened = await opening`, or `async with opening as opened:`. It is a coroutine, so it can be made a task."""

    def __init__(self, opening: Coroutine[Any, Any, T], close: Callable[[T], Awaitable[None]]) -> None:
        self._opening, self._close = opening, close
        self._opened: list[T] = []

    def __await__(self) -> Generator[Any, Any, T]:
        return self._opening.__await__()

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    async def __aenter__(self) -> T:
        opened = await self._opening
        self._opened.append(opened)
        return opened

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for opened in self._opened:
            await self._close(opened)
