"""A connection to the simulated PostgreSQL, as `psycopg.AsyncConnection` is one to a real one.

What goes over it is carried by a wire, which takes its time, and may lose what it carries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import psycopg
from psycopg import Notify, sql
from psycopg.pq import ExecStatus, TransactionStatus
from simulated_server import Backend, Server, adapted
from sql_compiler import Answer

CONNECT_S = 5.0
UNANSWERED_S = 10.0
"""After so long a connection counts as broken on which nothing is acknowledged."""


class Wire(Protocol):
    """Carries what is sent between a machine and the database."""

    def carry(self, connection: SimulatedConnection, work: Callable[[], None], *, back: bool = False) -> None:
        """Have something done at the other end, after a while or never; `back` to the machine."""
        ...


class PlainWire:
    """Carries everything, in the next moment."""

    def carry(self, connection: SimulatedConnection, work: Callable[[], None], *, back: bool = False) -> None:
        asyncio.get_running_loop().call_soon(work)


class SimulatedCursor:
    """What a statement answered."""

    def __init__(self, connection: SimulatedConnection, row_factory: Any = None) -> None:
        self._connection, self._row_factory = connection, row_factory
        self._rows: deque[Any] = deque()
        self.rowcount = -1
        self.names: tuple[str, ...] = ()

    async def __aenter__(self) -> SimulatedCursor:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def execute(self, query: Any, values: Any = None) -> SimulatedCursor:
        self.show(await self._connection.ask(query, values))
        return self

    def show(self, answer: Answer) -> None:
        self.names, self.rowcount = answer.names, answer.count
        make = self._row_factory(self) if self._row_factory is not None else tuple
        self._rows = deque(make(row) for row in answer.rows)

    @property
    def description(self) -> list[psycopg.Column]:
        return [_Described(name) for name in self.names]  # type: ignore[misc]

    @property
    def _encoding(self) -> str:
        return "utf-8"

    @property
    def pgresult(self) -> Any:
        return _Result(self.names)

    async def fetchone(self) -> Any:
        return self._rows.popleft() if self._rows else None

    async def fetchall(self) -> list[Any]:
        rows, self._rows = [*self._rows], deque()
        return rows


class _Described:
    def __init__(self, name: str) -> None:
        self.name = name


class _Result:
    """What the driver's row factories look at."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self.nfields, self.status = names, len(names), ExecStatus.TUPLES_OK

    def fname(self, number: int) -> bytes:
        return self._names[number].encode()


class _Info:
    server_version = 160_000

    def __init__(self, pid: int) -> None:
        self.backend_pid = pid

    def parameter_status(self, name: str) -> str | None:
        return {"server_encoding": "UTF8"}.get(name)


class SimulatedConnection:
    """A client's end of a connection. After anything was lost on it, it is broken."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self._server, self._wire = server, wire
        self.backend: Backend | None = None
        self.owner: Any = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._heard: deque[Notify] = deque()
        self._news: asyncio.Event = asyncio.Event()
        self._depth = 0
        self._is_repeatable = False
        self.is_broken = self.is_closed = False

    @property
    def info(self) -> _Info:
        return _Info(self.backend.pid if self.backend is not None else 0)

    @property
    def pgconn(self) -> SimulatedConnection:
        return self

    @property
    def transaction_status(self) -> TransactionStatus:
        if self.is_broken or self.is_closed:
            return TransactionStatus.UNKNOWN
        return TransactionStatus.INTRANS if self._depth else TransactionStatus.IDLE

    async def open(self) -> None:
        """Be let in by the server.

        Raises:
            psycopg.OperationalError: it is not there, or does not answer.
        """

        def enter(reply: Callable[[Any], None]) -> None:
            if not self._server.is_up:
                reply(psycopg.OperationalError("connection refused"))
                return
            self.backend = self._server.open(self._hear, self._lose, self.owner)
            reply(Answer((), [], 0, {}))

        await self._round_trip(enter, within_s=CONNECT_S)

    async def __aenter__(self) -> SimulatedConnection:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.is_closed = True
        self._news.set()
        if (backend := self.backend) is not None:
            self._wire.carry(self, backend.close)

    def cut(self) -> None:
        """End both ends at once, as the system does with those of a process that dies."""
        self.is_closed = self.is_broken = True
        if self.backend is not None:
            self.backend.close()

    def cursor(self, *, row_factory: Any = None) -> SimulatedCursor:
        return SimulatedCursor(self, row_factory)

    async def execute(self, query: Any, values: Any = None) -> SimulatedCursor:
        return await SimulatedCursor(self).execute(query, values)

    async def set_isolation_level(self, level: Any) -> None:
        self._is_repeatable = level is not None

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction, or a part of one that can be undone alone."""
        await self._say(self._begin)
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            if not (self.is_broken or self.is_closed):
                await self._say(self._undo)
            raise
        self._depth -= 1
        await self._round_trip(self._commit)

    def _begin(self) -> None:
        assert self.backend is not None
        if self.backend.transaction is None:
            self.backend.begin(snapshot=self._is_repeatable)
        else:
            self.backend.save()

    def _undo(self) -> None:
        assert self.backend is not None
        if self._depth:
            self.backend.back()
        else:
            self.backend.rollback()

    def _commit(self, reply: Callable[[Any], None]) -> None:
        assert self.backend is not None
        if self._depth:
            self.backend.keep()
            reply(Answer((), [], 0, {}))
        else:
            self.backend.commit(reply)

    async def _say(self, work: Callable[[], None]) -> None:
        def answer(reply: Callable[[Any], None]) -> None:
            work()
            reply(Answer((), [], 0, {}))

        await self._round_trip(answer)

    async def ask(self, query: Any, values: Any) -> Answer:
        """Have a statement carried out."""
        text = query.as_string() if isinstance(query, sql.Composable) else query
        if text.startswith("BEGIN"):
            self._is_repeatable = "REPEATABLE READ" in text
            await self._say(self._begin)
            self._depth += 1
            return Answer((), [], 0, {})
        given = values if isinstance(values, dict) else {f"_{number}": one for number, one in enumerate(values or ())}
        adaptable = {name: adapted(value) for name, value in given.items()}

        def execute(reply: Callable[[Any], None]) -> None:
            assert self.backend is not None
            self.backend.execute(text, adaptable, reply)

        return await self._round_trip(execute)

    async def notifies(self, *, timeout: float) -> AsyncIterator[Notify]:  # noqa: ASYNC109 - as the driver has it
        limit = asyncio.get_running_loop().time() + timeout
        while True:
            while self._heard:
                yield self._heard.popleft()
            self._check()
            self._news.clear()
            try:
                async with asyncio.timeout_at(limit):
                    await self._news.wait()
            except TimeoutError:
                return

    # --- over the wire

    async def _round_trip(
        self, work: Callable[[Callable[[Any], None]], None], within_s: float = UNANSWERED_S
    ) -> Answer:
        """Have the server do something, and wait for what it answers.

        Raises:
            psycopg.Error: what it answers, or that the connection is lost; it is not known then what it did.
        """
        self._check()
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()

        def settle(answer: Any) -> None:
            if waiting.done():
                return
            if isinstance(answer, BaseException):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)

        def arrive() -> None:
            backend = self.backend
            if backend is None or not backend.is_closed:
                work(lambda answer: self._wire.carry(self, lambda: settle(answer), back=True))

        def give_up() -> None:
            self.is_broken = True
            settle(psycopg.OperationalError("the connection is lost: no answer"))

        self._wire.carry(self, arrive)
        timer = loop.call_later(within_s, give_up)
        try:
            return await waiting
        except asyncio.CancelledError:
            self.is_broken = True
            raise
        except psycopg.OperationalError:
            if self.backend is None or self.backend.is_closed:
                self.is_broken = True
            raise
        finally:
            timer.cancel()
            self._waiting = None

    def _check(self) -> None:
        if self.is_broken or self.is_closed:
            raise psycopg.OperationalError("the connection is closed")

    def _hear(self, channel: str, word: str) -> None:
        def hear() -> None:
            self._heard.append(Notify(channel, word, 0))
            self._news.set()

        self._wire.carry(self, hear, back=True)

    def lose(self) -> None:
        """Break the connection: what is under way on it is lost."""
        self.is_broken = True
        self._news.set()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(psycopg.OperationalError("the connection is lost"))

    def _lose(self) -> None:
        """Let the client see that the server ended the connection."""
        self._wire.carry(self, self.lose, back=True)


def connection_type(server: Server, wire: Wire | None = None) -> Any:
    """Return what opens connections to a server, in the place of `AsyncConnection`."""

    class Connection(SimulatedConnection):
        @classmethod
        async def connect(cls, conninfo: str, **settings: Any) -> SimulatedConnection:
            connection = cls(server, wire or PlainWire())
            await connection.open()
            return connection

    return Connection
