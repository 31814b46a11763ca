"""The way to the database: one thread with one event loop, a few connections, and patience while it is away.

Work is handed over from any event loop and any thread, or is all done in one event loop that its callers have. What it
does to the database has to bear being done twice: it is done again when a connection breaks, and then it is not known
whether the first time took effect.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.pq import TransactionStatus

from amplifier_system.tasks import cancelled, run_to_end, start_task
from amplifierd.exceptions import OutcomeUnknownError, StoreClosedError, StoreFullError, StoreUnavailableError
from amplifierd.store_address import StoreAddress

from .schema import prepare

logger = logging.getLogger(__name__)
logging.getLogger("psycopg").setLevel(logging.ERROR)  # what it warns of is reported when patience is over

T = TypeVar("T")

PATIENCE_S = 30.0
"""For so long is waited for a database that is away."""

_SERVICES = ("daemon", "worker")
_FIRST_S = 3.0  # how long a person at a command waits

MOST_CONNECTIONS = 3
"""A process opens so many, and one more where it has a lease to renew."""

_ATTEMPT_S = 15.0
LONG_ATTEMPT_S = 600.0  # for what is read or written in many parts
_IDLE_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25
_CLOSE_S = 5.0
_CONNECTION: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",  # of several hosts, the one that is the primary
}
_SETTINGS = {
    "lock_timeout": "5s",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "5s",
    "default_transaction_isolation": "read committed",  # in which a fence waits, and then sees what became of the hold
}
_MAKE_ROOM = "make room on the disk of the database, then try again"
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry")  # a server that does not let us in
_PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,  # this process stood still meanwhile
    errors.UniqueViolation,  # by what the same work did the first time, which it recognises the second time
)

Work = Callable[[AsyncConnection], Awaitable[T]]


class Database:
    """The database of one process. Nothing is opened before the first work.

    It works in an event loop of its own, in a thread of its own, unless it is given a `loop` to share with its callers.
    `close` refuses further work, waits a moment for what is under way, and is final.
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        program: str = "library",
        patience_s: float = PATIENCE_S,
        connection_type: type[AsyncConnection] = AsyncConnection,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._address, self._program, self._patience_s = address, program, patience_s
        self._connection_type, self._is_service = connection_type, program in _SERVICES
        self._starting = threading.Lock()
        self._shared_loop = loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.is_closed = False
        self._under_way: set[Future[Any]] = set()
        self._under_way_here: set[asyncio.Task[Any]] = set()
        self._connections = Connections(partial(self._connect, ""), most=MOST_CONNECTIONS, idle_s=_IDLE_S)
        self._preparing = asyncio.Lock()
        self._is_prepared = False

    def __str__(self) -> str:
        return str(self._address)

    # --- from any event loop

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the database's own event loop; cancelling the caller cancels it.

        Raises:
            StoreClosedError: it was closed before.
            OutcomeUnknownError: it was closed meanwhile.
        """
        try:
            loop, caller = self._running_loop(), asyncio.current_task()
        except StoreClosedError:
            work.close()
            raise
        if self._shared_loop is not None:
            return await self._call_here(work)
        if loop is asyncio.get_running_loop():
            return await work
        running = asyncio.run_coroutine_threadsafe(work, loop)
        self._under_way.add(running)
        running.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if running.cancelled() and caller is not None and not caller.cancelling():
                raise OutcomeUnknownError(f"{self} was closed meanwhile", hint="open the home again") from None
            raise

    async def _call_here(self, work: Coroutine[Any, Any, T]) -> T:
        caller, running = asyncio.current_task(), start_task(work)
        self._under_way_here.add(running)
        try:
            return await running
        except asyncio.CancelledError:
            if self.is_closed and caller is not None and not caller.cancelling():
                raise self._closed() from None
            raise
        finally:
            self._under_way_here.discard(running)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there to its end, also when its caller is cancelled meanwhile."""
        return await run_to_end(self.call(work))

    async def read(self, work: Work[T]) -> T:
        """Ask the database for something; asked again when the connection breaks."""
        return await self.call(self.run(work))

    async def close(self) -> None:
        with self._starting:
            self.is_closed = True
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if self._shared_loop is not None:
            await self._close_here()
        if loop is None or thread is None:
            return
        if under_way := [asyncio.wrap_future(running) for running in tuple(self._under_way)]:
            await run_to_end(asyncio.wait(under_way, timeout=_CLOSE_S))
        await run_to_end(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close(self._connections), loop)))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()

    async def _close_here(self) -> None:
        """End what was asked for, and leave the other work of a shared event loop alone."""
        if self._under_way_here:
            await run_to_end(asyncio.wait(self._under_way_here, timeout=_CLOSE_S))
        await cancelled(*self._under_way_here)
        await self._connections.close()

    # --- in the database's event loop

    async def run(self, work: Work[T], *, attempt_s: float | None = None) -> T:
        """Do something with a connection, and again when that broke."""

        async def attempt() -> T:
            async with self.connection() as connection:
                return await work(connection)

        return await self.patiently(attempt, attempt_s=attempt_s)

    async def patiently(self, attempt: Callable[[], Awaitable[T]], *, attempt_s: float | None = None) -> T:
        """Try something until it succeeds or patience is over; an attempt that takes longer than it may has failed.

        Raises:
            StoreUnavailableError: the database was away all the time, or refuses us.
            StoreFullError: its disk is full.
        """
        patience_s = self._patience_s if self._is_prepared or self._is_service else min(self._patience_s, _FIRST_S)
        limit = asyncio.get_running_loop().time() + patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(attempt_s or _ATTEMPT_S):
                    return await attempt()
            except errors.DiskFull as error:  # waiting makes no room
                raise StoreFullError(f"{self} has no room left: {_words(error)}", hint=_MAKE_ROOM) from error
            except (*_PASSING, TimeoutError) as error:
                if _is_refusal(error) or asyncio.get_running_loop().time() + pause > limit:
                    raise self._unavailable(error) from error
                logger.info("%s: %s; trying again", self, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection to a database whose tables are prepared."""
        await self._prepared()
        async with self._connections.lend() as connection:
            yield connection

    async def connect(self, purpose: str) -> AsyncConnection:
        """Open a connection beside those that are lent, which its caller closes."""
        await self._prepared()
        return await self._connect(purpose)

    async def _prepared(self) -> None:
        """Have the tables prepared by the first caller; what failed then is tried again by the next."""
        if self._is_prepared:
            return
        async with self._preparing:
            if not self._is_prepared:
                async with self._connections.lend() as connection:
                    await prepare(connection, self._address.schema)
                self._is_prepared = True

    async def _connect(self, purpose: str) -> AsyncConnection:
        name = " ".join(("amplifier", self._program, purpose)).strip()
        connection = await self._connection_type.connect(self._address.conninfo, **_CONNECTION, application_name=name)
        try:
            await self._configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _configure(self, connection: AsyncConnection) -> None:
        settings = {**_SETTINGS, "search_path": self._address.schema}
        calls = ", ".join("set_config(%s, %s, false)" for _ in settings)
        words = [word for pair in settings.items() for word in pair]
        await connection.execute(f"SELECT {calls}", words)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self.is_closed:
                raise self._closed()
            if self._shared_loop is not None:
                return self._shared_loop
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="session-store", daemon=True)
                self._thread.start()
            return self._loop

    def _closed(self) -> StoreClosedError:
        return StoreClosedError(f"{self} was closed", hint="open the home again")

    def _unavailable(self, error: BaseException) -> StoreUnavailableError:
        reason = _words(error) or f"no answer within {_ATTEMPT_S:g} s"
        return StoreUnavailableError(
            f"the sessions in {self} cannot be reached: {reason}",
            hint="check that PostgreSQL runs there and accepts us (setting store): amplifier store status",
        )


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())


def _is_refusal(error: BaseException) -> bool:
    """True if a server refuses us for good; while a connection is made it gives no code, only words."""
    has_code = getattr(error, "sqlstate", None) is not None
    return not has_code and any(words in str(error) for words in _REFUSALS)


async def _close(connections: Connections) -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=_CLOSE_S)
    await connections.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


class Connections:
    """Lends connections, the one that was used last first; used in one event loop.

    At most `most` are open. Whoever needs another one waits for one to come back; an attempt to open one is made at
    once, and says what is wrong when it fails.
    """

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection]], *, most: int, idle_s: float) -> None:
        self._connect, self._idle_s = connect, idle_s
        self._few = asyncio.Semaphore(most)
        self._idle: list[tuple[AsyncConnection, float]] = []
        self._sweeping: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection; one that breaks meanwhile is closed, and with it those that may be broken as well."""
        async with self._few:
            connection = self._idle.pop()[0] if self._idle else await self._connect()
            try:
                yield connection
            except (psycopg.OperationalError, psycopg.InterfaceError):
                await self._close_idle()
                raise
            finally:
                await self._take_back(connection)

    async def close(self) -> None:
        """Close those that are not in use."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._close_idle()

    async def _take_back(self, connection: AsyncConnection) -> None:
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:  # broken, or in the middle of something
            await connection.close()
            return
        self._idle.append((connection, asyncio.get_running_loop().time()))
        if self._sweeping is None:
            self._sweeping = start_task(self._sweep())

    async def _sweep(self) -> None:
        """Close, for as long as there are any, those that were not used for a while."""
        try:
            while self._idle:
                await asyncio.sleep(self._idle_s / 2)
                limit = asyncio.get_running_loop().time() - self._idle_s
                for entry in [entry for entry in self._idle if entry[1] < limit]:
                    self._idle.remove(entry)
                    await entry[0].close()
        finally:
            self._sweeping = None  # the next connection that is given back starts it again

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await connection.close()
