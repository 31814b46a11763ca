"""Requests that may be sent twice: what the first one with a key was answered, for 24 hours and across restarts.

Keys are kept in files of one hour each, `state/idempotency/<hour>.jsonl`, and what was answered beside them, in
`<hour>.answers`. Those that are a day old go as a whole. If answers take too much room the oldest go earlier, but not
their keys: such a request is refused when it comes again, and never done twice. Only one process writes there: the one
that holds the home.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import LineFile
from amplifier_system.tasks import start_task
from amplifierd.exceptions import IdempotencyConflictError, RequestInterruptedError

KEPT_S = 24 * 3600.0
MAX_KEYS = 100_000
"""How many are known at a time: more than one a second, all day. Beyond that the oldest are forgotten."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_TOTAL_BYTES = 256 * 1024 * 1024

_HOUR_S = 3600
_KEYS, _ANSWERS = ".jsonl", ".answers"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredAnswer:
    """An answer as it is sent again."""

    status: int
    headers: dict[str, str]
    body: str


Place = tuple[Path, int, int]
"""A line: its file, where it begins, and how long it is."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is known about a key; the answer of a finished one is in a file, or here when that took nothing."""

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
        self._hour = 0
        self._files: dict[str, LineFile] = {}  # those of the hour, by their kind

    def load(self) -> None:
        """Take up what earlier processes kept, and remove what is too old; blocks, and comes before all else."""
        if self._directory.is_dir():
            self._remove_old()
            answers = {path.name: path for path in self._segments(_ANSWERS)}
            for path in self._segments(_KEYS):
                for line in _lines(path):
                    self._take_up(line, path, answers)

    async def once(self, owner: str, key: str, fingerprint: str, work: Work) -> tuple[StoredAnswer, bool]:
        """Do the work of a request unless it was done, and return its answer, and whether that was kept from before.

        The work continues to its end even if the client goes away. What it raises is not kept: nothing was done.

        Raises:
            IdempotencyConflictError: the key belongs to another request.
            RequestInterruptedError: an earlier daemon did not live to see the end of the first one, or its answer is
                not kept any more.
        """
        name = hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()
        entry = self._find(name)
        if entry is None:
            self._entries[name] = entry = _Entry(fingerprint, time.time(), "running")
            task = start_task(self._run(name, entry, work))
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
        self._close_files()

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
        is_small = len(answer.body) <= MAX_ANSWER_BYTES
        place = self._keep(answer) if is_small else None
        here = answer if is_small and place is None else None
        self._entries[name] = done = replace(entry, state="done", place=place, answer=here)
        self._append(name, done)
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

    def _append(self, name: str, entry: _Entry | None) -> None:
        """Write what is known about a name, at once and whole; without an entry nothing was done under it."""
        facts: dict[str, Any] = {"name": name, "at": time.time(), "state": "dropped"}
        if entry is not None:
            facts |= {"at": entry.at, "state": entry.state, "fingerprint": entry.fingerprint}
            if entry.place is not None:
                facts |= {"file": entry.place[0].name, "answer": entry.place[1:]}
        self._write(_KEYS, facts)

    def _keep(self, answer: StoredAnswer) -> Place | None:
        """Write an answer, and return where it is; None when the disk took nothing."""
        return self._write(_ANSWERS, asdict(answer))

    def _write(self, kind: str, facts: dict[str, Any]) -> Place | None:
        data = json.dumps(facts, ensure_ascii=True) + "\n"
        try:
            file = self._segment(kind)
            file.append(data)
        except OSError as error:
            logger.warning("the answer to a request is not kept for the next start: %s", error)
            return None
        return file.path, file.size() - len(data), len(data)

    def _segment(self, kind: str) -> LineFile:
        hour = int(time.time()) // _HOUR_S
        if hour != self._hour:
            self._close_files()
            self._hour = hour
        if kind not in self._files:
            make_directory(self._directory)
            self._files[kind] = LineFile(self._directory / f"{hour}{kind}")
            self._remove_old()
        return self._files[kind]

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _segments(self, kind: str) -> list[Path]:
        found = (path for path in self._directory.glob(f"*{kind}") if path.stem.isdigit())
        return sorted(found, key=lambda path: int(path.stem))

    def _remove_old(self) -> None:
        oldest, total = (time.time() - KEPT_S) // _HOUR_S - 1, 0
        for path in self._segments(_KEYS):
            if int(path.stem) < oldest:
                path.unlink(missing_ok=True)
        for path in reversed(self._segments(_ANSWERS)):
            total += path.stat().st_size
            if int(path.stem) < oldest or (total > MAX_TOTAL_BYTES and int(path.stem) != self._hour):
                path.unlink(missing_ok=True)
        self._forget_old()

    def _forget_old(self) -> None:
        for name, entry in list(self._entries.items()):
            if time.time() - entry.at <= KEPT_S:
                return  # those that follow came later
            if name not in self._running:
                del self._entries[name]

    def _take_up(self, line: bytes, path: Path, answers: Mapping[str, Path]) -> None:
        try:
            facts = json.loads(line)
            name, state, at = facts["name"], facts["state"], float(facts["at"])
            if state == "dropped" or time.time() - at > KEPT_S:
                self._entries.pop(name, None)
            elif state == "done":
                self._entries[name] = _Entry(facts["fingerprint"], at, "done", _place(facts, answers))
            else:
                self._entries[name] = _Entry(facts["fingerprint"], at, "interrupted")
        except (ValueError, KeyError, TypeError):
            logger.warning("%s has a line that cannot be read; it is left out", path)


def conflict(key: str) -> IdempotencyConflictError:
    """Return the error for a key that belongs to another request."""
    return IdempotencyConflictError(
        f"the Idempotency-Key {key!r} was used for another request", hint="use a new key for a new request"
    )


def interrupted() -> RequestInterruptedError:
    """Return the error for a request whose answer is unknown."""
    return RequestInterruptedError(
        "the daemon ended while it worked on this request, or could not keep the answer",
        hint="look at what came of it, then send the next request with a new key",
    )


def _place(facts: Mapping[str, Any], answers: Mapping[str, Path]) -> Place | None:
    """Return where an answer is; None when it is not kept, or took too much room."""
    file = answers.get(facts.get("file", ""))
    return None if file is None else (file, int(facts["answer"][0]), int(facts["answer"][1]))


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file."""
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n") and len(line) > 1)


def _read(place: Place) -> StoredAnswer:
    path, offset, length = place
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return StoredAnswer(**json.loads(file.read(length)))
    except FileNotFoundError:  # it took too much room
        raise interrupted() from None
