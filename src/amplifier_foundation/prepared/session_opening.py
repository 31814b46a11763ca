"""A session that is about to be created: awaited, or entered with `async with`."""

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession


class SessionOpening(Coroutine[Any, Any, "AmplifierSession"]):
    """What `create_session` returns.

    `session = await opening` gives the initialized session; `async with opening as session:` also cleans it up. It is a
    coroutine, so it can be made a task.
    """

    def __init__(self, opening: Coroutine[Any, Any, "AmplifierSession"]) -> None:
        self._opening = opening
        self._session: AmplifierSession | None = None

    def __await__(self) -> Generator[Any, Any, "AmplifierSession"]:
        return self._opening.__await__()

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    async def __aenter__(self) -> "AmplifierSession":
        self._session = await self._opening
        return self._session

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.cleanup()
