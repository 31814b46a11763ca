"""The engine that hands out turns, procrastinate: one at a time per session, by priority and then in order.

A job says which turn is to run, and its queue which member is to run it. A job changes in the same transaction as the
row of its turn, so that neither is ever without the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

from procrastinate.connector import BaseAsyncConnector
from procrastinate.exceptions import NoResult
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from psycopg import AsyncConnection, errors
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

_TASK = "turn"
_MOVE = "UPDATE procrastinate_jobs SET status = 'todo', queue_name = %s WHERE id = %s AND status IN ('todo', 'doing')"


@dataclass(frozen=True)
class JobRequest:
    """A turn for which a job is needed."""

    turn_id: str
    session_id: str
    member_id: str
    priority: int


async def register_worker(connection: AsyncConnection) -> int:
    """Return the number under which a member takes jobs."""
    return await _manager(connection).register_worker()


async def defer(connection: AsyncConnection, wanted: JobRequest) -> int:
    """Make a job, and return its number."""
    job = Job(
        queue=wanted.member_id,
        lock=wanted.session_id,
        queueing_lock=None,
        task_name=_TASK,
        priority=wanted.priority,
        task_kwargs={"turn_id": wanted.turn_id},
    )
    deferred = await _manager(connection).defer_job_async(job)
    assert deferred.id is not None
    return deferred.id


async def fetch(connection: AsyncConnection, member_id: str, worker_id: int) -> int | None:
    """Take the next job of a member whose session has no other at work; returns its number."""
    job = await _manager(connection).fetch_job(queues=[member_id], worker_id=worker_id)
    return job.id if job is not None else None


async def move(connection: AsyncConnection, job_id: int, to: str) -> None:
    """Have another member do a job, and keep its place in the order; the engine itself moves only what has begun."""
    await connection.execute(_MOVE, [to, job_id])


async def remove(connection: AsyncConnection, job_id: int) -> None:
    """Remove a job that is done, or is not to be done; one that is gone is left alone."""
    try:
        async with connection.transaction():
            await _manager(connection).finish_job_by_id_async(job_id, Status.SUCCEEDED, delete_job=True)
    except errors.RaiseException:  # the engine's word for a job that is not there
        pass


def _manager(connection: AsyncConnection) -> JobManager:
    return JobManager(_OurConnection(connection))


class _OurConnection(BaseAsyncConnector):
    """Lets the engine work on a connection of ours, in the transaction that it is in."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        await self._connection.execute(query, _wrapped(arguments))

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        rows = await self.execute_query_all_async(query, **arguments)
        if not rows:
            raise NoResult
        return rows[0]

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query, _wrapped(arguments))
            rows: list[DictRow] = await cursor.fetchall()
            return rows


def _wrapped(value: Any) -> Any:
    """Return arguments as the driver takes them; objects below the first level are JSON."""
    return {name: _in_json(one) for name, one in value.items()}


def _in_json(value: Any) -> Any:
    match value:
        case dict():
            return Jsonb(value)
        case list():
            return [_in_json(one) for one in value]
        case tuple():
            return tuple(_in_json(one) for one in value)
        case _:
            return value
