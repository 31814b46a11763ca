"""What a run with a cluster left: the rows of its store, what its clients were shown, and what its tools did.

Shares no code with the product: rows are read with psycopg, and only the names of tables and columns are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

Json = Mapping[str, Any]

SUBMITTED, SHOWN, RUNS, COMPLAINTS = "submitted.jsonl", "shown", "work/runs.txt", "complaints.txt"
"""What a run writes into its folder: lines of JSON, a folder of them, and what modules wrote."""

BEGUN, DONE, INTENT, OUTCOME = "user_message:saved", "execution:done", "tool:intent", "tool:outcome"
PIECE = "llm:stream_block_delta"


def is_piece(name: str) -> bool:
    """Say whether an event is a piece of an answer, which is shown and never stored."""
    return name.endswith(":delta") or name == PIECE


@dataclass(frozen=True)
class Write:
    """How the database saw a line being written: under which hold, and by whom."""

    line: int
    epoch: int | None
    member_id: str | None
    state: str | None
    who: str


@dataclass(frozen=True)
class StoredSession:
    """A session as its rows have it; lines with their numbers, in order."""

    number: int
    session_id: str
    record: Json
    messages: list[tuple[int, Json]]
    events: list[tuple[int, int, Json]]
    """With their lines and their numbers in the tree."""

    epochs: list[tuple[int | None, int]]
    writes: dict[str, list[Write]]

    @property
    def root_id(self) -> str:
        return str(self.record.get("root_session_id") or self.session_id)

    @property
    def is_root(self) -> bool:
        return self.root_id == self.session_id

    def of(self, name: str, correlation_id: str | None = None) -> list[tuple[int, Json]]:
        """Return the events of a name, by default of every turn, with their numbers."""
        return [
            (seq, event)
            for _, seq, event in self.events
            if event["event"] == name and correlation_id in (None, event.get("correlation_id"))
        ]

    def member_of(self, event: Json) -> str | None:
        """Return the member that wrote an event."""
        line = next(line for line, seq, _ in self.events if seq == event["seq"])
        return next((write.member_id for write in self.writes["events"] if write.line == line), None)


@dataclass(frozen=True)
class Submission:
    """A turn that a client wanted. `is_accepted` if it was told that the turn will run."""

    session_id: str
    key: str
    prompt: str
    is_accepted: bool
    correlation_ids: frozenset[str]


@dataclass(frozen=True)
class ShownStream:
    """Everything that one client saw of one session, over all of its connections."""

    name: str
    session_id: str
    events: list[Json]


@dataclass
class Evidence:
    """The store, through a connection, and the folder of a run; if `sessions` are named, what belongs to them."""

    connection: psycopg.Connection[Any]
    folder: Path
    sessions: frozenset[str] | None = None
    schema: str = "amplifier"

    @property
    def _wanted(self) -> list[str] | None:
        return None if self.sessions is None else [*self.sessions]

    def trees(self) -> Iterator[list[StoredSession]]:
        """Yield the sessions that belong together, the root of each first."""
        roots: dict[str, list[tuple[int, str, Json]]] = {}
        for number, session_id, body in self._rows(
            f"SELECT number, session_id, record FROM {self.schema}.sessions WHERE deleted_at IS NULL AND"
            " (%s::text[] IS NULL OR coalesce(root_session_id, session_id) = ANY(%s)) ORDER BY number",
            *[self._wanted] * 2,
        ):
            record = json.loads(body)
            root = str(record.get("root_session_id") or session_id)
            roots.setdefault(root, []).append((number, session_id, record))
        for members in roots.values():
            yield sorted((self._session(*member) for member in members), key=lambda one: not one.is_root)

    def _session(self, number: int, session_id: str, record: Json) -> StoredSession:
        messages = self._rows(f"SELECT line, body FROM {self.schema}.messages WHERE session = %s ORDER BY line", number)
        events = self._rows(
            f"SELECT line, seq, body FROM {self.schema}.events WHERE session = %s ORDER BY line", number
        )
        epochs = self._rows("SELECT old_epoch, epoch FROM audit.holds WHERE session = %s ORDER BY number", number)
        writes: dict[str, list[Write]] = {"messages": [], "events": []}
        for kind, *facts in self._rows(
            "SELECT kind, line, epoch, member_id, state, who FROM audit.writes WHERE session = %s ORDER BY number",
            number,
        ):
            writes[kind].append(Write(*facts))
        return StoredSession(
            number,
            session_id,
            record,
            [(line, json.loads(body)) for line, body in messages],
            [(line, seq, json.loads(body)) for line, seq, body in events],
            [(old, new) for old, new in epochs],
            writes,
        )

    @cached_property
    def members(self) -> dict[str, str]:
        """The role of each member's daemon."""
        first = "SELECT DISTINCT ON (member_id) member_id, who FROM audit.members ORDER BY member_id, at"
        return {member_id: who for member_id, who in self._rows(first)}

    @cached_property
    def left(self) -> frozenset[str]:
        """The members that were told to stop, and said so when they did."""
        return frozenset(row[0] for row in self._rows("SELECT member_id FROM audit.members WHERE state = 'left'"))

    @cached_property
    def submissions(self) -> list[Submission]:
        found: dict[str, dict[str, Any]] = {}
        for line in _lines(self.folder / SUBMITTED):
            if self.sessions is not None and line["session_id"] not in self.sessions:
                continue
            known = found.setdefault(line["key"], {"correlation_ids": set(), "is_accepted": False, **line})
            if line["is_accepted"]:
                known["is_accepted"] = True
                known["correlation_ids"].add(line["correlation_id"])
        return [
            Submission(
                each["session_id"], each["key"], each["prompt"], each["is_accepted"], frozenset(each["correlation_ids"])
            )
            for each in found.values()
        ]

    @cached_property
    def turns(self) -> dict[str, tuple[str, str]]:
        """What became of the turns in the queue: where each stands, and how it ended."""
        found = self._rows(
            f"SELECT turn_id, state, coalesce(result, '') FROM {self.schema}.turns"
            " WHERE %s::text[] IS NULL OR session_id = ANY(%s)",
            *[self._wanted] * 2,
        )
        return {turn_id: (state, result) for turn_id, state, result in found}

    def shown(self, root_id: str) -> Iterator[ShownStream]:
        """Yield what clients saw of a tree; the name of a file begins with the session's id."""
        for path in sorted((self.folder / SHOWN).glob(f"{root_id}.*.jsonl")):
            yield ShownStream(path.name, root_id, list(_lines(path)))

    @cached_property
    def runs(self) -> list[str]:
        """What the tools wrote when they began and ended."""
        path = self.folder / RUNS
        return path.read_text().splitlines() if path.exists() else []

    @cached_property
    def complaints(self) -> str:
        """What the provider found wrong with requests."""
        path = self.folder / COMPLAINTS
        return path.read_text() if path.exists() else ""

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        return self.connection.execute(statement, values).fetchall()


def text_of(message: Json) -> str:
    """Return what a message says."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(block.get("text") or "" for block in content or () if isinstance(block, dict))


def _lines(path: Path) -> Iterable[Json]:
    with path.open() as file:
        for line in file:
            yield json.loads(line)
