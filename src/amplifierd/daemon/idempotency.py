"""Requests that may be sent twice: what the first one with a key was answered, for 24 hours and across restarts.

What was answered is kept in files of one hour each, `state/idempotency/<hour>.jsonl`; those that are a day old go as a
whole. Only one process writes there: the one that holds the home.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import LineFile
from amplifierd.exceptions import IdempotencyConflictError, RequestInterruptedError

KEPT_S = 24 * 3600.0
MAX_KEYS = 20_000
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_TOTAL_BYTES = 32 * 1024 * 1024

_HOUR_S = 3600

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredAnswer:
    """An answer as it is sent again."""

    status: int
    headers: dict[str, str]
    body: str


Place = tuple[Path, int, int]
"""A line: its file, where it begins, and how long it is."""


@dataclass(frozen=True)
class _Entry:
    """What is known about a key; the answer of a finished one is in its file, or here when that took nothing."""

    fingerprint: str
    at: float
    state: Literal["running", "interrupted", "done"]
    place: Place | None = None
    answer: StoredAnswer | None = None


Work = Callable[[], Awaitable[StoredAnswer]]


class IdempotencyKeys:
    """The keys of one home, and what became of their requests."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._running: dict[str, asyncio.Task[StoredAnswer]] = {}
        self._files: dict[Path, LineFile] = {}

    def load(self) -> None:
        """Take up what earlier processes kept, and remove what is too old; blocks, and comes before all else."""
        if self._directory.is_dir():
            self._remove_old()
            for path in self._segments():
                for offset, length, line in _lines(path):
                    self._take_up(line, (path, offset, length))

    async def once(self, owner: str, key: str, fingerprint: str, work: Work) -> tuple[StoredAnswer, bool]:
        """Do the work of a request unless it was done, and return its answer, and whether that was kept from before.

        The work goes on to its end if whoever asked for it goes away. What it raises is not kept: nothing was done.

        Raises:
            IdempotencyConflictError: the key belongs to another request.
            RequestInterruptedError: an earlier daemon did not live to see the end of the first one.
        """
        name = hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()
        entry = self._find(name)
        if entry is None:
            self._entries[name] = entry = _Entry(fingerprint, time.time(), "running")
            task = asyncio.create_task(self._run(name, entry, work))
            self._running[name] = task
            return await asyncio.shield(task), False
        if entry.fingerprint != fingerprint:
            raise conflict(key)
        if name in self._running:
            return await asyncio.shield(self._running[name]), True
        if entry.answer is not None:
            return entry.answer, True
        if entry.place is not None:
            return await asyncio.to_thread(_read, entry.place), True
        raise interrupted()

    async def close(self) -> None:
        """Wait for what runs, and let go of the files."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        for file in self._files.values():
            file.close()
        self._files.clear()

    async def _run(self, name: str, entry: _Entry, work: Work) -> StoredAnswer:
        self._append(name, entry)
        try:
            answer = await work()
        except BaseException:
            del self._entries[name]
            self._append(name, None)
            raise
        finally:
            del self._running[name]
        done = replace(entry, state="done")
        if len(answer.body) > MAX_ANSWER_BYTES:
            self._append(name, done)
        else:
            place = self._append(name, done, answer)
            done = replace(done, place=place, answer=None if place else answer)
        self._entries[name] = done
        return answer

    def _find(self, name: str) -> _Entry | None:
        entry = self._entries.get(name)
        if entry is not None and name not in self._running and time.time() - entry.at > KEPT_S:
            del self._entries[name]
            return None
        while len(self._entries) > MAX_KEYS:
            oldest = next(iter(self._entries))
            if oldest in self._running:
                break
            del self._entries[oldest]
        return self._entries.get(name)

    def _append(self, name: str, entry: _Entry | None, answer: StoredAnswer | None = None) -> Place | None:
        """Write a line, at once and whole, and say where it is; without an entry nothing was done under the name."""
        facts: dict[str, Any] = {"name": name, "at": time.time(), "state": "dropped"}
        if entry is not None:
            facts |= {"at": entry.at, "state": entry.state, "fingerprint": entry.fingerprint}
        if answer is not None:
            facts["answer"] = asdict(answer)
        data = json.dumps(facts, ensure_ascii=True) + "\n"
        try:
            file = self._segment()
            file.append(data)
        except OSError as error:
            logger.warning("what a request was answered is not kept for the next start: %s", error)
            return None
        return file.path, file.size() - len(data), len(data)

    def _segment(self) -> LineFile:
        path = self._directory / f"{int(time.time()) // _HOUR_S}.jsonl"
        if path not in self._files:
            make_directory(self._directory)
            for old in self._files.values():
                old.close()
            self._files = {path: LineFile(path)}
            self._remove_old()
        return self._files[path]

    def _segments(self) -> list[Path]:
        found = (path for path in self._directory.glob("*.jsonl") if path.stem.isdigit())
        return sorted(found, key=lambda path: int(path.stem))

    def _remove_old(self) -> None:
        oldest = (time.time() - KEPT_S) // _HOUR_S - 1
        total = 0
        for path in reversed(self._segments()):
            total += path.stat().st_size
            if int(path.stem) < oldest or (total > MAX_TOTAL_BYTES and path not in self._files):
                path.unlink(missing_ok=True)
                gone = [name for name, entry in self._entries.items() if entry.place and entry.place[0] == path]
                for name in gone:
                    del self._entries[name]

    def _take_up(self, line: bytes, place: Place) -> None:
        try:
            facts = json.loads(line)
            name, state, at = facts["name"], facts["state"], float(facts["at"])
            if state == "dropped" or time.time() - at > KEPT_S:
                self._entries.pop(name, None)
            elif state == "done":
                self._entries[name] = _Entry(facts["fingerprint"], at, "done", place if "answer" in facts else None)
            else:
                self._entries[name] = _Entry(facts["fingerprint"], at, "interrupted")
        except (ValueError, KeyError, TypeError):
            logger.warning("%s has a line that cannot be read; it is left out", place[0])


def conflict(key: str) -> IdempotencyConflictError:
    """Return the error for a key that belongs to another request."""
    return IdempotencyConflictError(
        f"the Idempotency-Key {key!r} was used for another request", hint="use a new key for a new request"
    )


def interrupted() -> RequestInterruptedError:
    """Return the error for a request whose answer nobody knows."""
    return RequestInterruptedError(
        "the daemon ended while it worked on this request, or could not keep the answer",
        hint="look at what came of it, then send the next request with a new key",
    )


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the whole lines of a file with their places."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n") and len(line) > 1:
                yield offset, len(line), line
            offset += len(line)


def _read(place: Place) -> StoredAnswer:
    path, offset, length = place
    with path.open("rb") as file:
        file.seek(offset)
        return StoredAnswer(**json.loads(file.read(length))["answer"])
