"""The rows of turns. Every change is one transaction with that of the turn's job, and bears being made twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import class_row

from amplifierd.exceptions import ExecutionInProgressError, IdempotencyConflictError, QueueFullError
from amplifierd.sessions.layers.client_turns import ClientTurn
from amplifierd.store.postgres.database import Database, Work
from amplifierd.store.postgres.members import Channel, fenced
from amplifierd.store.postgres.session_rows import json_text, parsed
from amplifierd.turns.turn_queue import TurnKey
from amplifierd.workers.json_rpc import described_error, error_of
from amplifierd.workers.live_sessions import TurnRequest

from . import jobs

# What is asked of a turn, and what came of it, as the text that its row has.


REFUSED = "refused"
"""With what the text begins that says why a turn was not run."""


def request_text(turn: TurnRequest) -> str:
    return json_text(asdict(turn))


def request_of(text: str) -> TurnRequest:
    """Return what was asked; what a newer version knows beside it is left out."""
    known = {name: value for name, value in parsed(text).items() if name in TurnRequest.__dataclass_fields__}
    client = known.pop("client", None)
    return TurnRequest(**known, client=ClientTurn(**client) if client is not None else None)


def result_text(result: Mapping[str, Any]) -> str:
    return json_text({"result": result})


def error_text(error: Exception) -> str:
    return json_text({"error": described_error(error)})


def refusal_text(error: Exception) -> str:
    return json_text({REFUSED: True, "error": described_error(error)})


def refusal_of(text: str) -> Exception:
    """Return what refused a turn."""
    return error_of(parsed(text)["error"])


def result_of(text: str) -> dict[str, Any]:
    """Return what came of a turn.

    Raises what refused the turn, or ended it before it began.
    """
    outcome = parsed(text)
    if (error := outcome.get("error")) is not None:
        raise error_of(error)
    result: dict[str, Any] = outcome["result"]
    return result


T = TypeVar("T")

CHANNEL: Channel = "amplifier_turns"
REFUSALS: Channel = "amplifier_refusals"

_KEPT, _KEPT_WITH_KEY = "10 min", "1 day"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_FORGET = "DELETE FROM turns WHERE key_hash = %s AND state = 'ended' AND expires_at < now()"
_KNOWN = "SELECT turn_id, fingerprint FROM turns WHERE turn_id = %(turn_id)s OR key_hash = %(key_hash)s"
_COUNT = "SELECT count(*) FROM turns WHERE session_id = %s AND state <> 'ended'"
_INSERT = """
INSERT INTO turns (
    turn_id, session_id, member_id, asked_by, job_id, priority, deadline, request, key_hash, fingerprint
) VALUES (
    %(turn_id)s, %(session_id)s, %(member_id)s, %(asked_by)s, %(job_id)s, %(priority)s,
    now() + %(deadline_s)s::float8 * interval '1 s', %(request)s, %(key_hash)s, %(fingerprint)s
)
"""
_ROW = "turn_id, session_id, member_id, asked_by, state, job_id, priority, moves, request"
_MEMBER = """(
    SELECT FROM members WHERE members.member_id = turns.member_id AND members.state IN ('active', 'draining')
)"""
_BEGIN = f"""
UPDATE turns SET state = CASE WHEN deadline < now() THEN 'waiting' ELSE 'running' END
WHERE job_id = %s AND state = 'waiting' AND EXISTS {_MEMBER} RETURNING {_ROW}, (
    SELECT status FROM sessions WHERE sessions.session_id = turns.session_id AND deleted_at IS NULL
) AS session_status
"""
_IS_MEMBER = "SELECT FROM members WHERE member_id = %s AND state IN ('active', 'draining')"
_END = f"""
WITH ended AS (
    UPDATE turns SET state = 'ended', request = NULL, result = %(result)s,
        key_hash = CASE WHEN %(keeps_key)s THEN key_hash END,
        expires_at = now() + CASE WHEN key_hash IS NOT NULL AND %(keeps_key)s
            THEN interval '{_KEPT_WITH_KEY}' ELSE interval '{_KEPT}' END
    WHERE turn_id = %(turn_id)s AND state = %(state)s AND member_id = %(member_id)s
    AND (NOT %(is_late)s OR deadline <= now())
    AND EXISTS (SELECT FROM members WHERE members.member_id = %(by)s AND members.state IN ('active', 'draining'))
    RETURNING job_id, asked_by, session_id
)
SELECT job_id, asked_by, (
    SELECT turns.member_id FROM turns JOIN ended USING (session_id) WHERE state = 'waiting' AND turn_id <> %(turn_id)s
    ORDER BY turns.priority DESC, turns.job_id LIMIT 1
) FROM ended
"""
_REFUSED = f"""
SELECT turn_id, session_id, coalesce((
    SELECT root_session_id FROM sessions WHERE sessions.session_id = turns.session_id AND deleted_at IS NULL
), session_id) AS root_id, result FROM turns WHERE state = 'ended' AND starts_with(result, '{{"{REFUSED}":') AND
"""
_LATELY = f"""
(key_hash IS NULL AND expires_at > now() OR expires_at > now() + interval '{_KEPT_WITH_KEY}' - interval '{_KEPT}')
ORDER BY expires_at DESC LIMIT %s
"""
_MOVE = f"""
UPDATE turns SET member_id = %(to)s, state = 'waiting', moves = moves + 1
WHERE turn_id = %(turn_id)s AND member_id = %(member_id)s AND state = %(state)s RETURNING {_ROW}
"""
_OF_SESSION = "session_id = %(session_id)s AND state <> 'ended'"


@dataclass(frozen=True)
class TurnRow:
    """A turn that has not ended; `request` is what is asked of it."""

    turn_id: str
    session_id: str
    member_id: str
    asked_by: str
    state: str
    job_id: int
    priority: int
    moves: int
    request: str
    session_status: str | None = None
    """Of one that was just taken: that of its session, None if that is gone."""


@dataclass(frozen=True)
class EndedTurn:
    """A turn that has ended; `following` is the member that runs the next one of its session, if one waits."""

    following: str | None = None


@dataclass(frozen=True)
class RefusedTurn:
    """A turn that ended without having begun; `result` says why."""

    turn_id: str
    session_id: str
    root_id: str
    result: str


@dataclass(frozen=True)
class NewTurn:
    """A turn as it is submitted: for whom it is to run, and where it is waited for."""

    turn_id: str
    session_id: str
    member_id: str
    asked_by: str
    turn: TurnRequest
    key: TurnKey | None = None


@dataclass(frozen=True)
class SubmittedRow:
    """What became of a submit: `turn_id` is that of the turn which its key stands for; `before` count those ahead."""

    turn_id: str
    before: int
    is_repeated: bool = False


class TurnRows:
    """The turns of a store, from any event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def submit(self, new: NewTurn, *, most: int) -> SubmittedRow:
        """Keep a turn and have it handed out; `most` may wait in its session.

        Raises:
            ExecutionInProgressError: the session has a turn, and this one is not to wait.
            QueueFullError: too many wait.
            IdempotencyConflictError: its key stands for another request.
        """
        key_hash = None if new.key is None else hashlib.sha256(f"{new.key.owner}\0{new.key.key}".encode()).hexdigest()
        values = {
            **{"turn_id": new.turn_id, "session_id": new.session_id, "member_id": new.member_id},
            **{"asked_by": new.asked_by, "priority": new.turn.priority, "deadline_s": new.turn.deadline_s},
            **{"request": request_text(new.turn), "key_hash": key_hash},
            "fingerprint": new.key.fingerprint if new.key is not None else None,
        }

        async def insert(connection: AsyncConnection) -> SubmittedRow:
            async with connection.pipeline(), connection.transaction():
                await connection.execute(_LOCK, [new.session_id])
                if key_hash is not None:
                    await connection.execute(_FORGET, [key_hash])
                knowing = await connection.execute(_KNOWN, values)
                counting = await connection.execute(_COUNT, [new.session_id])
                if (known := await knowing.fetchone()) is not None:
                    return await _repeated(connection, new, *known)
                counted = await counting.fetchone()
                unended = int(counted[0]) if counted is not None else 0
                _check_room(new, unended, most)
                job = jobs.JobRequest(new.turn_id, new.session_id, new.member_id, new.turn.priority)
                await connection.execute(_INSERT, {**values, "job_id": await jobs.defer(connection, job)})
                await _wake(connection, {new.member_id} - {new.asked_by})
                return SubmittedRow(new.turn_id, unended)

        return await self._change(insert)

    async def take(self, member_id: str, worker_id: int) -> TurnRow | None:
        """Begin the next turn of a member; one whose deadline is over is returned as `waiting`, and does not begin.

        Raises:
            MemberFencedError: others fenced it, and its turns are left to them.
        """

        async def begin(connection: AsyncConnection) -> TurnRow | None:
            while True:
                async with connection.transaction():
                    job_id = await jobs.fetch(connection, member_id, worker_id)
                    if job_id is None:
                        return None
                    if found := await _rows(connection, _BEGIN, [job_id]):
                        return found[0]
                    if not (await connection.execute(_IS_MEMBER, [member_id])).rowcount:
                        raise fenced()
                    await jobs.remove(connection, job_id)

        return await self._change(begin)

    async def end(
        self,
        row: TurnRow,
        result: str,
        *,
        by: str | None = None,
        is_late: bool = False,
        keeps_key: bool = True,
        is_refusal: bool = False,
    ) -> EndedTurn | None:
        """Keep what came of a turn; None when it is not its member's any more, or not in this state.

        `by` is the member that says so, if not the turn's own; nothing is heard from one that others fenced. With
        `is_late` it ends only if its deadline is over. Every member is told of a refusal, of which no session tells.
        """
        values = {
            **{"turn_id": row.turn_id, "state": row.state, "member_id": row.member_id, "result": result},
            **{"is_late": is_late, "keeps_key": keeps_key, "by": by or row.member_id},
        }

        async def update(connection: AsyncConnection) -> EndedTurn | None:
            async with connection.transaction():
                ended = await (await connection.execute(_END, values)).fetchone()
                if ended is None:
                    known = await connection.execute("SELECT result FROM turns WHERE turn_id = %s", [row.turn_id])
                    return EndedTurn(row.member_id) if await known.fetchone() == (result,) else None
                job_id, asked_by, following = ended
                await jobs.remove(connection, job_id)
                await _wake(connection, {asked_by, following} - {values["by"], None})
                if is_refusal:
                    await connection.execute("SELECT pg_notify(%s, %s)", [REFUSALS, row.turn_id])
                return EndedTurn(following)

        return await self._change(update)

    async def move(self, rows: Sequence[TurnRow], to: str) -> None:
        """Have turns of one session run by another member when it is their time; those that changed meanwhile stay."""

        async def change(connection: AsyncConnection) -> None:
            async with connection.transaction():
                await connection.execute(_LOCK, [rows[0].session_id])
                for row in rows:
                    for moved in await _rows(connection, _MOVE, {**vars(row), "to": to}):
                        await jobs.move(connection, moved.job_id, to)
                await _wake(connection, {to})

        if rows:
            await self._change(change)

    async def of_session(self, session_id: str) -> list[TurnRow]:
        """Return the turns of a session that have not ended, the one that runs first, then the next one."""
        order = "ORDER BY state, priority DESC, job_id"  # running comes before waiting
        return await self._select(f"{_OF_SESSION} {order}", session_id=session_id)

    async def turns_in(self, session_id: str) -> list[TurnRow]:
        """Return the turns of a session that members had who are gone, in their order."""
        return await self._select(f"{_OF_SESSION} AND NOT EXISTS {_MEMBER} ORDER BY job_id", session_id=session_id)

    async def running(self, member_id: str) -> list[TurnRow]:
        return await self._select("member_id = %(member_id)s AND state = 'running'", member_id=member_id)

    async def waiting(self, member_id: str) -> list[TurnRow]:
        """Return the turns that wait for a member, those of one session in their order."""
        condition = "member_id = %(member_id)s AND state = 'waiting' ORDER BY session_id, job_id"
        return await self._select(condition, member_id=member_id)

    async def sessions_left(self, most: int) -> list[str]:
        """Return sessions with turns that members had who are gone; those that wait longest come first."""
        left = f"SELECT session_id FROM turns WHERE state <> 'ended' AND NOT EXISTS {_MEMBER}"
        return [
            row[0] for row in await self._fetch(f"{left} GROUP BY session_id ORDER BY min(job_id) LIMIT %s", [most])
        ]

    async def late(self, most: int) -> list[TurnRow]:
        """Return turns that wait and whose deadline is over, those first that have been late for longest."""
        condition = "state = 'waiting' AND deadline <= now() ORDER BY deadline LIMIT %(most)s"
        return await self._select(condition, most=most)

    async def results(self, turn_ids: Iterable[str]) -> dict[str, str]:
        """Return what came of those of these turns that have ended."""
        statement = "SELECT turn_id, result FROM turns WHERE turn_id = ANY(%s) AND state = 'ended'"
        return dict(await self._fetch(statement, [[*turn_ids]]))

    async def refused(self, turn_ids: Iterable[str]) -> list[RefusedTurn]:
        """Return those of these turns that were refused."""
        rows = await self._fetch(f"{_REFUSED} turn_id = ANY(%s)", [[*turn_ids]])
        return [RefusedTurn(*row) for row in rows]

    async def refused_lately(self, most: int) -> list[RefusedTurn]:
        """Return the turns that were refused in the last minutes, the latest first."""
        return [RefusedTurn(*row) for row in await self._fetch(f"{_REFUSED} {_LATELY}", [most])]

    async def seconds_left(self, turn_id: str) -> float | None:
        """Return for how long a turn that waits may still begin, None when it does not wait any more."""
        statement = "SELECT extract(epoch FROM deadline - now())::float8 FROM turns WHERE turn_id = %s"
        rows = await self._fetch(f"{statement} AND state = 'waiting' AND deadline IS NOT NULL", [turn_id])
        return rows[0][0] if rows else None

    async def forget_old(self) -> None:
        """Remove the results of turns that are no longer asked for."""

        async def delete(connection: AsyncConnection) -> None:
            await connection.execute("DELETE FROM turns WHERE state = 'ended' AND expires_at < now()")

        await self._change(delete)

    async def _select(self, condition: str, **values: Any) -> list[TurnRow]:
        async def select(connection: AsyncConnection) -> list[TurnRow]:
            return await _rows(connection, f"SELECT {_ROW} FROM turns WHERE {condition}", values)

        return await self._database.read(select)

    async def _fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        async def select(connection: AsyncConnection) -> list[Any]:
            return await (await connection.execute(statement, values)).fetchall()

        return await self._database.read(select)

    async def _change(self, work: Work[T]) -> T:
        return await self._database.finish(self._database.run(work))


async def _rows(connection: AsyncConnection, statement: str, values: Any) -> list[TurnRow]:
    async with connection.cursor(row_factory=class_row(TurnRow)) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall()


async def _wake(connection: AsyncConnection, member_ids: set[str]) -> None:
    for member_id in sorted(member_ids):
        await connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, member_id])


async def _repeated(connection: AsyncConnection, new: NewTurn, turn_id: str, fingerprint: str | None) -> SubmittedRow:
    """Answer a submit that was made before; who asks last is told the end."""
    if turn_id == new.turn_id:  # this very submit, whose answer was lost
        return SubmittedRow(turn_id, 0)
    if new.key is None or fingerprint != new.key.fingerprint:
        raise IdempotencyConflictError(
            "the Idempotency-Key was used for another request", hint="use a new key for a new request"
        )
    await connection.execute("UPDATE turns SET asked_by = %s WHERE turn_id = %s", [new.asked_by, turn_id])
    return SubmittedRow(turn_id, 0, is_repeated=True)


def _check_room(new: NewTurn, unended: int, most: int) -> None:
    if unended and not new.turn.queue:
        raise ExecutionInProgressError(
            f"session {new.session_id} is executing a turn", hint="wait for it, queue the prompt, or cancel it"
        )
    if unended > most:  # one of them does not wait
        raise QueueFullError(
            f"{most} prompts wait in session {new.session_id} already", hint="raise sessions.max_queue"
        )
