"""Writes of one process that wait at the same time, in one round trip and one commit.

Each is one statement that says by what it returns whether it took effect, and that can be given twice: after a broken
connection everything that was on its way is given again. They are written in the order in which they were handed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import AsyncConnection

from amplifier_system.tasks import start_task
from amplifierd.exceptions import OutcomeUnknownError, SessionError, StoreUnavailableError

from .database import LONG_ATTEMPT_S, Database

Row = tuple[Any, ...]
Further = Callable[[], Iterable[tuple[str, Mapping[str, Any]]]]
"""Returns the statements that follow a write in its transaction, one at a time, with their values."""

MOST_TOGETHER = 256
_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class _Write:
    statement: str
    values: Mapping[str, Any]
    size: int
    further: Further | None
    done: asyncio.Future[Row]


class GroupCommit:
    """Hands writes to the database; used in its event loop only. `most` of them go together at the most."""

    def __init__(self, database: Database, *, most: int = MOST_TOGETHER) -> None:
        self._database, self._most = database, most
        self._waiting: deque[_Write] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def execute(
        self, statement: str, values: Mapping[str, Any], *, size: int = 0, further: Further | None = None
    ) -> Row:
        """Give a statement and return the one row that it answers with; `size` is about how many bytes it has.

        Where it answers with the number of a session, `further` statements are given that number too.

        Raises:
            StoreUnavailableError: the database was away for too long; the write did not reach it.
            OutcomeUnknownError: it went away during the write, and stayed away for too long.
            StoreFullError: there is no room for it.
        """
        write = _Write(statement, values, size, further, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._writing is None:
            self._writing = start_task(self._write())
        return await write.done

    async def settle(self) -> None:
        """Return when everything that waits is written, or cannot be."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._give(self._take())
        finally:
            self._writing = None

    def _take(self) -> list[_Write]:
        taken, size = [self._waiting.popleft()], 0
        while self._waiting and len(taken) < self._most and size < _MOST_BYTES:
            if taken[0].further is not None or self._waiting[0].further is not None:
                break
            taken.append(self._waiting.popleft())
            size += taken[-1].size
        return taken

    async def _give(self, writes: Sequence[_Write]) -> None:
        was_given = False

        async def attempt() -> list[Row]:
            nonlocal was_given
            async with self._database.connection() as connection:
                was_given = True
                return await _together(connection, writes)

        try:
            is_long = writes[0].further is not None
            rows = await self._database.patiently(attempt, attempt_s=LONG_ATTEMPT_S if is_long else None)
        except asyncio.CancelledError:
            for write in writes:
                write.done.cancel()
            raise
        except StoreUnavailableError as error:
            await self._fail(writes, _unknown(error) if was_given else error)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for the writes hear of it
            await self._fail(writes, error)
        else:
            for write, row in zip(writes, rows, strict=True):
                if not write.done.done():
                    write.done.set_result(row)

    async def _fail(self, writes: Sequence[_Write], error: Exception) -> None:
        if len(writes) > 1 and not isinstance(error, SessionError):
            for write in writes:  # one of them cannot be written, whichever it is
                await self._give([write])
            return
        for write in writes:
            if not write.done.done():
                write.done.set_exception(error)


async def _together(connection: AsyncConnection, writes: Sequence[_Write]) -> list[Row]:
    first = writes[0]
    if first.further is not None:
        async with connection.transaction():
            row = await _row(await _execute(connection, first))
            for statement, values in first.further() if row[0] is not None else ():
                await connection.execute(statement, {**values, "session": row[0]})
        return [row]
    if len(writes) == 1:
        return [await _row(await _execute(connection, first))]
    async with connection.pipeline(), connection.transaction():
        cursors = [await _execute(connection, write) for write in writes]
    return [await _row(cursor) for cursor in cursors]


async def _execute(connection: AsyncConnection, write: _Write) -> psycopg.AsyncCursor[Row]:
    return await connection.execute(write.statement, write.values)


async def _row(cursor: psycopg.AsyncCursor[Row]) -> Row:
    row = await cursor.fetchone()
    assert row is not None, "every write answers with one row"
    return row


def _unknown(error: StoreUnavailableError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"it is not known whether the last write took effect: {error.message}",
        hint=error.hint or "look at the session before you repeat it",
    )
