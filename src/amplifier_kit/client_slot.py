"""A vendor's client: built when it is first needed, closed in bounded time."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from amplifier_system.tasks import start_task

logger = logging.getLogger(__name__)

C = TypeVar("C")


class ClientSlot(Generic[C]):
    """Holds one client. `build` makes it, `close` ends it; after a close the next use builds a fresh one."""

    def __init__(
        self, module_id: str, build: Callable[[], C], close: Callable[[C], Awaitable[object]], *, timeout_s: float = 5.0
    ) -> None:
        self._module_id = module_id
        self._build = build
        self._close = close
        self._timeout_s = timeout_s
        self._client: C | None = None
        self._building = threading.Lock()

    @property
    def is_filled(self) -> bool:
        """True if there is a client, so that `get` returns at once."""
        return self._client is not None

    def get(self) -> C:
        """Return the client, building it if need be; may be called in any thread."""
        with self._building:
            if self._client is None:
                self._client = self._build()
            return self._client

    def put(self, client: C) -> None:
        """Use a client that was built elsewhere."""
        self._client = client

    async def close(self) -> None:
        """Close the client, if there is one; one that does not close in time is abandoned with a warning.

        A caller that is cancelled meanwhile does not leave the client half closed.
        """
        client, self._client = self._client, None
        if client is not None:
            await asyncio.shield(start_task(self._close_in_time(client)))

    async def _close_in_time(self, client: C) -> None:
        closing = start_task(self._close(client))
        done, _ = await asyncio.wait({closing}, timeout=self._timeout_s)  # whatever it does when it is cancelled
        if not done:
            closing.cancel()
            closing.add_done_callback(_retrieve)
            logger.warning(
                "%s: the client did not close within %g s and is left alone", self._module_id, self._timeout_s
            )
        elif error := _retrieve(closing):
            logger.warning("%s: the client could not be closed", self._module_id, exc_info=error)


def _retrieve(closing: "asyncio.Future[object]") -> BaseException | None:
    """Return how closing failed, so that it is not reported as never retrieved."""
    return None if closing.cancelled() else closing.exception()
