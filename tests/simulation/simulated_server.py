"""A simulated PostgreSQL: transactions, locks and notifications over the simulated tables.

It runs in whatever event loop it is called in, and never waits for a caller: what a client sent is carried out whether
or not that client is still there.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import sqlglot
from psycopg import errors
from psycopg.types.json import Json as GivenJson
from psycopg.types.json import Jsonb
from sql_compiler import Answer, Statement, row_condition
from sql_tables import Column, Definition, Json, Key, Row, Table, Unique
from sqlglot import exp

LOCK_TIMEOUT_S = 5.0
IDLE_IN_TRANSACTION_S = 5.0
EPOCH = 1_700_000_000.0
"""The moment at which every simulation begins, by the database's clock."""

Reply = Callable[[Answer | Exception], None]

_KNOWN: dict[str, Definition] = {}
_JOB = (
    *("id", "queue_name", "task_name", "priority", "lock", "queueing_lock", "args", "status", "scheduled_at"),
    *("attempts", "abort_requested", "worker_id"),
)
_DEFERRED = ("queue_name", "task_name", "priority", "lock", "queueing_lock", "args", "scheduled_at")
_ENGINE = "CREATE TABLE procrastinate_jobs"
_DEFAULTS = {"status": "todo", "attempts": 0, "abort_requested": False, "priority": 0}


def _engine_tables() -> Iterable[Definition]:
    """Return the tables of the engine that hands out turns, whose functions are written out below."""

    def constant(value: Any) -> Callable[[Any], Any]:
        return lambda run: value

    columns = tuple(
        Column(name, "jsonb" if name == "args" else "text", constant(_DEFAULTS.get(name)), name == "id")
        for name in _JOB
    )
    yield Definition("procrastinate_jobs", columns, ("id",))
    yield Definition("procrastinate_workers", (Column("id", "bigint", is_identity=True),), ("id",))


for _definition in _engine_tables():
    _KNOWN[_definition.name] = _definition
_KNOWN["procrastinate_fetch_job_v2()"] = Definition("", _KNOWN["procrastinate_jobs"].columns, ())
_KNOWN["procrastinate_register_worker_v1()"] = Definition("", (Column("worker_id", "bigint"),), ())


def _definition_of(name: str) -> Definition:
    try:
        return _KNOWN[name]
    except KeyError:
        raise errors.UndefinedTable(f'relation "{name}" does not exist') from None


@cache
def _statement(text: str) -> Statement:
    return Statement(text, _definition_of)


@cache
def _changed_tables(text: str) -> tuple[Definition, ...]:
    """Return the tables that a text of statements makes or changes; what makes them only faster is left out."""
    found: dict[str, Definition] = {}
    for statement in sqlglot.parse(text, dialect="postgres"):
        match statement:
            case exp.Create() if statement.kind == "TABLE":
                definition = _new_table(statement)
            case exp.Create() if statement.kind == "INDEX" and statement.args.get("unique"):
                definition = _with_index(statement.this, found)
            case exp.Alter():
                before = found.get(statement.this.name) or _KNOWN[statement.this.name]
                added = [_column(one) for one in statement.args["actions"]]
                definition = replace(before, columns=(*before.columns, *added))
            case _:
                continue
        found[definition.name] = definition
    _KNOWN.update(found)
    return tuple(found.values())


def _new_table(statement: exp.Create) -> Definition:
    columns, key = _columns_of(statement)
    hidden = [] if key else [Column("_row", "bigint", is_identity=True)]
    return Definition(
        statement.this.this.name, (*columns, *hidden), tuple(key or ["_row"]), tuple(_uniques_of(statement))
    )


def _with_index(index: exp.Expression, found: dict[str, Definition]) -> Definition:
    name, params = index.args["table"].name, index.args["params"]
    definition, where = found.get(name) or _KNOWN[name], params.args.get("where")
    condition = None if where is None else row_condition(where.this, definition.names)
    unique = Unique(tuple(one.this.name for one in params.args["columns"]), condition)
    return replace(definition, uniques=(*definition.uniques, unique))


def _columns_of(statement: exp.Create) -> tuple[list[Column], list[str]]:
    columns, key = [], []
    for one in statement.this.expressions:
        if isinstance(one, exp.PrimaryKey):
            key = [part.name for part in one.expressions]
        if isinstance(one, exp.ColumnDef):
            columns.append(_column(one))
            if any(isinstance(each.kind, exp.PrimaryKeyColumnConstraint) for each in one.constraints):
                key = [one.name]
    return columns, key


def _column(one: exp.ColumnDef) -> Column:
    default: Callable[[Any], Any] | None = None
    is_identity = False
    for constraint in (each.kind for each in one.constraints):
        match constraint:
            case exp.DefaultColumnConstraint():
                default = _default(constraint.this)
            case exp.GeneratedAsIdentityColumnConstraint():
                is_identity = True
    return Column(one.name, one.args["kind"].sql("postgres").lower(), default, is_identity)


def _uniques_of(statement: exp.Create) -> list[Unique]:
    return [
        Unique((one.name,))
        for one in statement.this.expressions
        if isinstance(one, exp.ColumnDef)
        and any(isinstance(each.kind, exp.UniqueColumnConstraint) for each in one.constraints)
    ]


def _default(node: exp.Expression) -> Callable[[Any], Any]:
    if isinstance(node, exp.CurrentTimestamp):
        return lambda run: run.transaction.now
    value = node.this if node.is_string else int(node.this)
    return lambda run: value


class Blocked(Exception):
    """Another transaction has a row; what wanted it is tried again when that one has ended."""

    def __init__(self, by: Transaction) -> None:
        super().__init__(f"blocked by {by.backend.pid}")
        self.by = by


class Transaction:
    """What one backend does until it commits. `snapshot` are the tables that it sees all the while, if it says so."""

    def __init__(self, backend: Backend, snapshot: dict[str, Table] | None = None) -> None:
        self.backend, self.server, self.snapshot = backend, backend.server, snapshot
        self.now = self.server.now()
        self.changes: dict[str, dict[Key, Row | None]] = {}
        self.said: list[tuple[str, str]] = []
        self.locked: set[tuple[str, Key]] = set()
        self.waiting: list[Callable[[], None]] = []
        self.is_failed = False

    def table(self, name: str) -> Table:
        table = (self.snapshot or self.server.tables).get(name)
        if table is None or name in self.server.hidden:
            raise errors.UndefinedTable(f'relation "{name}" does not exist')
        return table.changed(own) if (own := self.changes.get(name)) else table

    def lock(self, name: str, key: Key, *, shared: bool = False) -> None:
        lock = self.server.locks.get((name, key))
        if lock is None:
            lock = self.server.locks[name, key] = _Lock()
        others = lock.owners - {self}
        if others and not (shared and lock.is_shared):
            raise Blocked(min(others, key=lambda other: other.backend.pid))
        lock.is_shared = shared and (lock.is_shared or not lock.owners)
        lock.owners.add(self)
        self.locked.add((name, key))

    def is_locked(self, name: str, key: Key) -> bool:
        lock = self.server.locks.get((name, key))
        return lock is not None and bool(lock.owners - {self})

    def next_number(self, name: str) -> int:
        self.server.numbers[name] = self.server.numbers.get(name, 0) + 1
        return self.server.numbers[name]

    def merge(self, changes: dict[str, dict[Key, Row | None]]) -> None:
        for name, rows in changes.items():
            self.changes.setdefault(name, {}).update(rows)

    def end(self) -> None:
        """Let go of what was locked, and let those go on who waited for it."""
        for place in self.locked:
            lock = self.server.locks[place]
            lock.owners.discard(self)
            if not lock.owners:
                del self.server.locks[place]
        waiting, self.waiting = self.waiting, []
        for go_on in waiting:
            go_on()

    def call(self, function: str, arguments: Sequence[Any]) -> Any:
        found = _FUNCTIONS.get(function)
        if found is None:
            raise NotImplementedError(f"the simulated database knows no function {function}")
        return found(self, *arguments)


@dataclass
class _Lock:
    owners: set[Transaction] = field(default_factory=set)
    is_shared: bool = False


class Backend:
    """The server's end of a connection. `hear` gets the notifications that its client listens to."""

    def __init__(
        self, server: Server, pid: int, hear: Callable[[str, str], None], lost: Callable[[], None], owner: object
    ) -> None:
        self.server, self.pid, self._hear, self._lost, self.owner = server, pid, hear, lost, owner
        self.channels: set[str] = set()
        self.transaction: Transaction | None = None
        self.is_closed = False
        self._savepoints: list[dict[str, dict[Key, Row | None]]] = []
        self._idle: asyncio.TimerHandle | None = None
        self.blocked_by: Transaction | None = None
        self.may_idle = False

    # --- what its client asks for; each answers through `reply`

    def begin(self, *, snapshot: bool = False) -> None:
        self.transaction = Transaction(self, dict(self.server.tables) if snapshot else None)
        self._watch()

    def save(self) -> None:
        assert self.transaction is not None
        self._savepoints.append({name: dict(rows) for name, rows in self.transaction.changes.items()})

    def back(self) -> None:
        assert self.transaction is not None
        self.transaction.changes, self.transaction.is_failed = self._savepoints.pop(), False

    def keep(self) -> None:
        self._savepoints.pop()

    def commit(self, reply: Reply) -> None:
        transaction = self.transaction
        if transaction is None:
            reply(errors.IdleInTransactionSessionTimeout("terminating connection due to idle-in-transaction timeout"))
            return
        self._end()
        if not transaction.is_failed:
            self.server.commit(transaction)
        transaction.end()
        reply(Answer((), [], 0, {}))

    def rollback(self) -> None:
        transaction = self.transaction
        self._end()
        if transaction is not None:
            transaction.end()

    def execute(self, text: str, values: dict[str, Any], reply: Reply) -> None:
        """Carry out a statement; one that waits for a lock is tried again when that is free."""
        if self._idle is not None:
            self._idle.cancel()
        if self.transaction is not None and self.transaction.is_failed:
            reply(errors.InFailedSqlTransaction("current transaction is aborted"))
        elif not self.is_closed:
            _Execution(self, text, values, reply).attempt()

    def end_statement(self, answer: Answer | Exception) -> None:
        self.blocked_by = None
        if self.transaction is not None:
            self.transaction.is_failed = self.transaction.is_failed or isinstance(answer, Exception)
            self._watch()

    @property
    def blocking_pids(self) -> list[int]:
        return [] if self.blocked_by is None else [self.blocked_by.backend.pid]

    def notify(self, channel: str, word: str) -> None:
        if channel in self.channels:
            self._hear(channel, word)

    def close(self) -> None:
        """End it; what it had not committed is undone."""
        if self.is_closed:
            return
        self.is_closed = True
        self.rollback()
        self.server.backends.pop(self.pid, None)
        self._lost()

    def _watch(self) -> None:
        """End a transaction whose client does nothing with it."""
        if self._idle is not None:
            self._idle.cancel()
        if self.transaction is not None and not self.may_idle:
            self._idle = self.server.loop.call_later(IDLE_IN_TRANSACTION_S, self.close, context=self.server.context)

    def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self.transaction = None
        self._savepoints.clear()


class _Execution:
    """A statement on its way: in the transaction that its backend is in, or in one of its own."""

    def __init__(self, backend: Backend, text: str, values: dict[str, Any], reply: Reply) -> None:
        self._backend, self._server, self._text, self._values = backend, backend.server, text, values
        self._reply, self._is_alone = reply, backend.transaction is None
        self._transaction = backend.transaction or Transaction(backend)
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def attempt(self) -> None:
        if self._backend.is_closed or self._is_over:
            if self._is_alone:
                self._transaction.end()
            return
        if self._is_alone:
            self._transaction.now = self._server.now()
        try:
            answer = self._server.answer(self._transaction, self._text, self._values)
        except Blocked as blocked:
            self._wait_for(blocked.by)
        except Exception as error:  # noqa: BLE001 - what this server cannot do is the client's to see
            self._end(error)
        else:
            self._transaction.merge(answer.changes)
            self._end(answer)

    def _wait_for(self, other: Transaction) -> None:
        self._backend.blocked_by = other
        other.waiting.append(lambda: self._server.soon(self.attempt))
        if self._timer is None:
            loop, context = self._server.loop, self._server.context
            self._timer = loop.call_later(LOCK_TIMEOUT_S, self._give_up, context=context)

    def _give_up(self) -> None:
        self._end(errors.LockNotAvailable("canceling statement due to lock timeout"))

    def _end(self, answer: Answer | Exception) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._is_alone:
            if not isinstance(answer, Exception):
                self._server.commit(self._transaction)
            self._transaction.end()
        self._backend.end_statement(answer)
        self._reply(answer)


class Server:
    """The database of a simulation. `context` is the one in which it does what no client waits for."""

    def __init__(self, *, template: Server | None = None) -> None:
        self.tables: dict[str, Table] = dict(template.tables) if template else {}
        self.numbers: dict[str, int] = dict(template.numbers) if template else {}
        self.locks: dict[tuple[str, Key], _Lock] = {}
        self.backends: dict[int, Backend] = {}
        self.is_up = True
        self.hidden: set[str] = set()
        self.was_hidden = False
        self.context = contextvars.copy_context()
        self.on_commit: Callable[[Transaction], None] = lambda transaction: None
        self._pid = 1000

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def now(self) -> float:
        return EPOCH + self.loop.time()

    def soon(self, work: Callable[[], None]) -> None:
        self.loop.call_soon(work, context=self.context)

    def open(self, hear: Callable[[str, str], None], lost: Callable[[], None], owner: object = None) -> Backend:
        """Let a client in; `owner` is the process that it is of."""
        self._pid += 1
        backend = self.backends[self._pid] = Backend(self, self._pid, hear, lost, owner)
        return backend

    def stop(self) -> None:
        """End every connection, as a server does that is restarted; what was committed stays."""
        self.is_up = False
        for backend in tuple(self.backends.values()):
            backend.close()

    def answer(self, transaction: Transaction, text: str, values: dict[str, Any]) -> Answer:
        stripped = text.lstrip()
        if stripped.startswith(("CREATE", "ALTER")) or _ENGINE in text:
            self._define(stripped)
            return Answer((), [], 0, {})
        if stripped.startswith("SET "):
            return Answer((), [], 0, {})
        if stripped.startswith("LISTEN"):
            transaction.backend.channels.add(stripped.split()[1].strip('"'))
            return Answer((), [], 0, {})
        return _statement(text).execute(transaction, values)

    def _define(self, text: str) -> None:
        if _ENGINE in text:
            for definition in _engine_tables():
                self.tables.setdefault(definition.name, Table(_KNOWN[definition.name]))
        elif not text.startswith("CREATE SCHEMA"):
            for definition in _changed_tables(text):
                table, none = self.tables.get(definition.name), dict.fromkeys(definition.names)
                rows = {definition.key_of(row): {**none, **row} for row in table or ()}
                self.tables[definition.name] = Table(definition).changed(rows)

    def commit(self, transaction: Transaction) -> None:
        for name, rows in transaction.changes.items():
            if name in self.tables:
                self.tables[name] = self.tables[name].changed(rows)
        if transaction.changes:
            self.on_commit(transaction)
        for channel, word in dict.fromkeys(transaction.said):
            for backend in tuple(self.backends.values()):
                backend.notify(channel, word)


def adapted(value: Any) -> Any:
    """Return a value as the driver would hand it over."""
    match value:
        case Jsonb() | GivenJson():
            return Json(json.dumps(value.obj))
        case list() | tuple():
            return [adapted(one) for one in value]
        case str() if "\0" in value:
            raise errors.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        case _:
            return value


# --- functions


def _notify(transaction: Transaction, channel: str, word: str) -> str:
    transaction.said.append((channel, word))
    return ""


def _advisory_lock(transaction: Transaction, number: Any) -> str:
    transaction.lock("advisory", (number,))
    return ""


def _settings(transaction: Transaction, name: str, value: str, is_local: bool) -> str:
    if name == "idle_in_transaction_session_timeout" and value == "0":
        transaction.backend.may_idle = True
    return value


def _current_setting(transaction: Transaction, name: str) -> str:
    known = {"server_version": "16.0", "fsync": "on", "synchronous_commit": "on", "synchronous_standby_names": ""}
    return known[name]


def _terminate(transaction: Transaction, pid: int) -> bool:
    backend = transaction.server.backends.get(pid)
    if backend is not None:
        transaction.server.soon(backend.close)
    return backend is not None


def _blocking(transaction: Transaction, pid: int) -> list[int]:
    backend = transaction.server.backends.get(pid)
    return backend.blocking_pids if backend is not None else []


def _table_exists(transaction: Transaction, name: str) -> str | None:
    table = name.rpartition(".")[2]
    return table if table in transaction.server.tables else None


def _violation(transaction: Transaction, table: str, columns: Sequence[str]) -> None:
    raise errors.UniqueViolation(f"duplicate key value violates unique constraint of {table} ({', '.join(columns)})")


def _write(transaction: Transaction, table: str, key: Key, row: Row | None) -> None:
    transaction.lock(table, key)
    transaction.merge({table: {key: row}})


def _defer_jobs(transaction: Transaction, jobs: Sequence[Any]) -> list[int]:
    ids = []
    for job in jobs:
        number = transaction.next_number("procrastinate_jobs")
        row = {**dict.fromkeys(_JOB), **_DEFAULTS, **dict(zip(_DEFERRED, job, strict=True)), "id": number}
        _write(transaction, "procrastinate_jobs", (number,), row)
        ids.append(number)
    return ids


def _fetch_job(transaction: Transaction, queues: Sequence[str], worker_id: int) -> list[Row]:
    """Take the first job of some queues whose session has none at work, and none that comes before it."""
    table = "procrastinate_jobs"
    jobs = [*transaction.table(table)]

    def is_before(other: Row, job: Row) -> bool:
        if other["lock"] != job["lock"]:
            return False
        first = (-other["priority"], other["id"]) < (-job["priority"], job["id"])
        return other["status"] == "doing" or (other["status"] == "todo" and first)

    ready = [
        job
        for job in jobs
        if job["status"] == "todo" and job["queue_name"] in queues and not any(is_before(one, job) for one in jobs)
    ]
    for job in sorted(ready, key=lambda one: (-one["priority"], one["id"])):
        if not transaction.is_locked(table, (job["id"],)):
            taken = {**job, "status": "doing", "worker_id": worker_id}
            _write(transaction, table, (job["id"],), taken)
            return [taken]
    return [dict.fromkeys(_JOB)]


def _finish_job(transaction: Transaction, job_id: int, status: str, delete: bool) -> str:
    assert delete, "the store removes what is finished"
    job = transaction.table("procrastinate_jobs").find((job_id,))
    if job is None or job["status"] not in ("todo", "doing"):
        raise errors.RaiseException('Job was not found or not in "doing" or "todo" status')
    _write(transaction, "procrastinate_jobs", (job_id,), None)
    return ""


def _register_worker(transaction: Transaction) -> list[Row]:
    number = transaction.next_number("procrastinate_workers")
    _write(transaction, "procrastinate_workers", (number,), {"id": number})
    return [{"worker_id": number}]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pg_notify": _notify,
    "pg_advisory_xact_lock": _advisory_lock,
    "hashtext": lambda transaction, text: text,
    "hashtextextended": lambda transaction, text, seed: text,
    "set_config": _settings,
    "current_setting": _current_setting,
    "to_regclass": _table_exists,
    "pg_total_relation_size": lambda transaction, name: 8192,
    "pg_terminate_backend": _terminate,
    "pg_blocking_pids": _blocking,
    "raise_unique_violation": _violation,
    "procrastinate_defer_jobs_v1": _defer_jobs,
    "procrastinate_fetch_job_v2": _fetch_job,
    "procrastinate_finish_job_v1": _finish_job,
    "procrastinate_register_worker_v1": _register_worker,
}
