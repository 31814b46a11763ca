"""Long work that goes on by itself: it reports how far it is, can be joined and cancelled, and is kept for a day."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from amplifier_foundation.sources import ProgressEvent
from amplifier_foundation.sources.store import make_directory, now
from amplifier_system.files import LineFile, write_atomically
from amplifier_system.tasks import start_task
from amplifierd.exceptions import OperationCancelledError, OperationFinishedError, OperationNotFoundError
from amplifierd.problems import interrupted_work_document, public_document
from amplifierd.server.auth.callers import Caller

logger = logging.getLogger(__name__)

Status = Literal["pending", "running", "succeeded", "failed", "cancelled"]
Listener = Callable[[dict[str, Any]], None]

KEPT_S = 24 * 3600.0
MAX_KEPT = 1000

_current: ContextVar[Operation | None] = ContextVar("operation", default=None)


@dataclass
class Operation:
    """One piece of long work. `owners` are those who asked for it.

    `done` counts what got ready, of `total` things of the kind `counted` where it is known how many there are.
    """

    kind: str
    target: str
    owners: set[str]
    id: str = field(default_factory=lambda: f"op_{uuid.uuid4().hex}")
    status: Status = "pending"
    done: int = 0
    total: int | None = None
    counted: str | None = None
    message: str = ""
    result: Any = None
    failure: Exception | None = None
    error: dict[str, Any] | None = None
    created_at: str = field(default_factory=now)
    finished_at: str | None = None
    ended: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "status": self.status,
            "progress": {"done": self.done, "total": self.total, "message": self.message},
            "result": self.result,
            "error": self.error,
            "created_at": self.created_at,
            "finished_at": self.finished_at,
        }

    def to_stored(self) -> dict[str, Any]:
        return {**self.to_json(), "owners": sorted(self.owners)}

    @classmethod
    def from_stored(cls, facts: dict[str, Any]) -> Operation:
        """Return an operation that an earlier process began; one that it did not end has failed with it."""
        progress = facts["progress"]
        operation = cls(
            **{key: facts[key] for key in ("kind", "target", "id", "status", "result", "error", "created_at")},
            owners=set(facts["owners"]),
            done=progress["done"],
            total=progress["total"],
            message=progress["message"],
            finished_at=facts["finished_at"],
        )
        if operation.finished_at is None:
            operation.status, operation.finished_at = "failed", now()
            operation.error = interrupted_work_document(f"{operation.kind} of {operation.target or 'all'}")
        age = datetime.now(UTC) - datetime.fromisoformat(operation.finished_at)
        operation.ended = time.monotonic() - max(0.0, age.total_seconds())
        return operation

    def take_note(self, event: ProgressEvent) -> None:
        """Count what a step got ready, and say what it is about."""
        if event.phase == "ready" and self.counted in (None, event.what) and self.done != self.total:
            self.done += 1
        self.message = " ".join(filter(None, (event.phase, event.what, event.ref, event.detail)))[:500]

    def outcome(self) -> Any:
        """Return the result of work that succeeded.

        Raises what the work raised, and `OperationCancelledError` if it was cancelled.
        """
        if self.failure is not None:
            raise self.failure
        if self.status == "cancelled":
            raise OperationCancelledError(f"The operation {self.kind} of {self.target or 'all'} was cancelled")
        return self.result


class Operations:
    """The long work of one daemon, kept in a file for the next. `listeners` are told of every change, on the event
    loop."""

    def __init__(self, path: Path) -> None:
        self.listeners: list[Listener] = []
        self._file = OperationsFile(path)
        self._operations: dict[str, Operation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def load(self) -> None:
        """Take up what earlier processes began; blocks, and comes before all else."""
        for facts in self._file.read():
            try:
                operation = Operation.from_stored(facts)
            except (KeyError, TypeError, ValueError):
                logger.warning("an operation of an earlier process cannot be read; it is left out")
            else:
                self._operations[operation.id] = operation
        self._forget_old()
        if self._operations:
            self._file.replace(each.to_stored() for each in self._operations.values())

    def start(self, kind: str, target: str, work: Callable[[], Awaitable[Any]], *, caller: Caller) -> Operation:
        """Begin some work, or join the same work on the same thing that is under way."""
        self._loop = asyncio.get_running_loop()
        self._forget_old()
        for known in self._operations.values():
            if (known.kind, known.target) == (kind, target) and known.finished_at is None:
                known.owners.add(caller.owner)
                return known
        operation = Operation(kind, target, {caller.owner})
        self._operations[operation.id] = operation
        self._keep(operation)
        self._tasks[operation.id] = start_task(self._run(operation, work))
        return operation

    async def wait(self, operation: Operation, seconds: float) -> bool:
        """Wait for an operation's end, and say whether it came; a caller that stops waiting stops nothing else."""
        task = self._tasks.get(operation.id)
        if task is not None:
            await asyncio.wait({task}, timeout=seconds)
        return operation.finished_at is not None

    def list(self, caller: Caller) -> list[Operation]:
        """Return the operations that a caller may see, the newest first."""
        self._forget_old()
        return [each for each in reversed(self._operations.values()) if _sees(caller, each)]

    def knows(self, operation_id: str) -> bool:
        """True if there is an operation, no matter who asked for it."""
        return operation_id in self._operations

    def get(self, operation_id: str, caller: Caller) -> Operation:
        """Return an operation.

        Raises:
            OperationNotFoundError: there is none of that id for this caller.
        """
        found = self._operations.get(operation_id)
        if found is None or not _sees(caller, found):
            raise OperationNotFoundError(f"Operation not found: {operation_id}", hint="they are kept for 24 hours")
        return found

    async def cancel(self, operation_id: str, caller: Caller) -> Operation:
        """Stop an operation, and wait until it has stopped.

        Raises:
            OperationNotFoundError: there is none of that id.
            OperationFinishedError: it is over.
        """
        operation = self.get(operation_id, caller)
        task = self._tasks.get(operation_id)
        if task is None:
            raise OperationFinishedError(f"Operation {operation_id} has {operation.status}")
        task.cancel()
        await asyncio.wait({task})
        return operation

    async def stop(self) -> None:
        """Cancel what runs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._file.close()

    def report(self, event: ProgressEvent) -> None:
        """Take note of a step of the operation that it belongs to; from any thread."""
        operation = _current.get()
        if operation is not None:
            operation.take_note(event)
            self._tell(operation)

    def expect(self, what: str, total: int) -> None:
        """Have the operation that this belongs to say how many things of a kind there are, and count only those."""
        operation = _current.get()
        if operation is not None:
            operation.counted, operation.total, operation.done = what, total, 0
            self._tell(operation)

    async def _run(self, operation: Operation, work: Callable[[], Awaitable[Any]]) -> None:
        _current.set(operation)
        operation.status = "running"
        self._tell(operation)
        try:
            operation.result = await work()
            operation.status, operation.done = "succeeded", operation.total or operation.done
        except asyncio.CancelledError:
            operation.status = "cancelled"
        except Exception as error:
            logger.info("operation %s of %s failed", operation.kind, operation.target, exc_info=error)
            operation.status, operation.failure, operation.error = "failed", error, public_document(error)
        finally:
            operation.finished_at, operation.ended = now(), time.monotonic()
            self._tasks.pop(operation.id, None)
            self._keep(operation)
            self._tell(operation)

    def _keep(self, operation: Operation) -> None:
        self._file.append(operation.to_stored())
        if self._file.lines > 4 * MAX_KEPT:
            self._file.replace(each.to_stored() for each in self._operations.values())

    def _tell(self, operation: Operation) -> None:
        found = operation.to_stored()
        if self._loop is not None and self.listeners:
            self._loop.call_soon_threadsafe(self._tell_all, found)

    def _tell_all(self, told: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener(told)

    def _forget_old(self) -> None:
        over = [each for each in self._operations.values() if each.ended is not None]
        too_many = len(self._operations) - MAX_KEPT
        for number, each in enumerate(over):
            if number < too_many or time.monotonic() - (each.ended or 0.0) > KEPT_S:
                del self._operations[each.id]


def _sees(caller: Caller, operation: Operation) -> bool:
    return caller.scope == "admin" or caller.owner in operation.owners


class OperationsFile:
    """One line when an operation begins and one when it has ended, each with all that is known then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LineFile | None = None
        self.lines = 0
        """How many were appended since the file was last replaced."""

    def read(self) -> list[dict[str, Any]]:
        """Return what is known of each operation, in the order in which they began; blocks."""
        found: dict[str, dict[str, Any]] = {}
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:  # there is none yet, or none that can be read: operations are a comfort, not a condition
            return []
        for line in lines:
            try:
                facts = json.loads(line)
                found[facts["id"]] = facts
            except (ValueError, KeyError, TypeError):
                logger.warning("%s has a line that cannot be read; it is left out", self._path)
        return [*found.values()]

    def replace(self, operations: Iterable[dict[str, Any]]) -> None:
        """Keep only these; blocks. A disk that takes nothing leaves the file as it was."""
        self.close()
        self.lines = 0
        text = "".join(_line(each) for each in operations)
        try:
            make_directory(self._path.parent)
            write_atomically(self._path, text.encode(), private=True)
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)

    def append(self, operation: dict[str, Any]) -> None:
        """Write down how an operation stands; a disk that takes nothing stops none."""
        try:
            if self._file is None:
                make_directory(self._path.parent)
                self._file = LineFile(self._path)
            self._file.append(_line(operation))
            self.lines += 1
        except OSError as error:
            logger.warning("what became of %s is not kept for the next start: %s", operation["id"], error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(operation: dict[str, Any]) -> str:
    return json.dumps(operation, ensure_ascii=True, default=str) + "\n"
