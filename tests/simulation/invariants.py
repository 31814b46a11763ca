"""What must hold after every step of a simulated cluster: the rules of the checker of real ones, at every commit.

The rules are those by which `tests/soak/cluster_checker.py` judges what a real cluster left behind, said once more
for rows as they are written and for events as they are published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from simulated_server import Server, Transaction
from sql_tables import Key, Row

from amplifierd.server.events.published_event import PublishedEvent
from amplifierd.sessions.layers.uncounted_usage import TURN_BEGUN, TURN_DONE
from amplifierd.store.cursor import Cursor

_LIVE = ("active", "draining")


class Violation(AssertionError):
    """Something happened that must never happen."""


class Invariants:
    """Looks at every commit of a database, and at every event that is published."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._machines: dict[str, str] = {}
        self._states: dict[str, str] = {}
        self._epochs: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._lines: dict[tuple[str, int], int] = {}
        self._seqs: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self.stored: dict[str, dict[int, dict[str, Any]]] = {}
        self.ends: dict[tuple[str, str], dict[str, Any]] = {}
        self._running: dict[str, Any] = {}
        self.prompts: dict[str, list[str]] = {}
        self._ended: dict[str, str] = {}
        server.on_commit = self.committed

    def committed(self, transaction: Transaction) -> None:
        owner = transaction.backend.owner
        for name, rows in transaction.changes.items():
            for key, row in sorted(rows.items(), key=lambda one: one[0]):
                check = getattr(self, f"_{name}", None)
                if check is not None:
                    check(owner, key, row)

    # --- who may write

    def _member(self, member_id: str | None) -> Row | None:
        return None if member_id is None else self._server.tables["members"].find((member_id,))

    def _members(self, owner: Any, key: Key, row: Row | None) -> None:
        if row is None:
            return
        self._machines.setdefault(key[0], str(owner).partition(".")[0])
        if (
            row["state"] == "fenced"
            and self._states.get(key[0]) != "fenced"
            and row["lease_until"] > self._server.now()
        ):
            raise Violation(f"{self._machines[key[0]]} was fenced while its lease was running")
        self._states[key[0]] = row["state"]

    def _sessions(self, owner: Any, key: Key, row: Row | None) -> None:
        if row is not None:
            self._ids[key[0]] = row["session_id"]

    def _holds(self, owner: Any, key: Key, row: Row | None) -> None:
        if row is None:
            return
        session, epoch = key[0], row["epoch"]
        last = self._epochs.get(session, 0)
        if epoch not in (last, last + 1):
            raise Violation(f"{self._ids.get(session)}: the epoch went from {last} to {epoch}")
        self._epochs[session] = epoch

    def _check_writer(self, owner: Any, session: int, what: str) -> None:
        """Every line was written by whoever had the hold at that moment, and was a member."""
        hold = self._server.tables["holds"].find((session,))
        where = f"{self._ids.get(session)}: {what} was written by {owner}"
        if hold is None:
            raise Violation(f"{where} without a hold")
        if self._written.get(session, 0) == 0 and hold["member_id"] is None:
            return  # what a session begins with
        member = self._member(hold["member_id"])
        if member is None:
            raise Violation(f"{where} while no one held the session")
        if self._machines.get(hold["member_id"]) != str(owner).partition(".")[0]:
            raise Violation(f"{where} while {self._machines.get(hold['member_id'])} held the session")
        if member["state"] not in _LIVE:
            raise Violation(f"{where}, which was {member['state']}")
        if hold["epoch"] < self._written.get(session, 0):
            raise Violation(f"{where} under epoch {hold['epoch']}, after {self._written[session]}")
        self._written[session] = hold["epoch"]

    # --- what is written

    def _messages(self, owner: Any, key: Key, row: Row | None) -> None:
        if row is None:
            return
        session, line = key
        self._check_writer(owner, session, f"message {line}")
        self._check_line("messages", session, line)
        body = json.loads(row["body"])
        if body["role"] == "user":
            turns = self.prompts.setdefault(body["content"], [])
            turns.append(body["correlation_id"])
            if len(turns) > 1 and "continues" not in (body.get("metadata") or {}):
                raise Violation(f"{self._ids[session]}: {body['content']!r} ran {len(turns)} times: {turns}")

    def _events(self, owner: Any, key: Key, row: Row | None) -> None:
        if row is None:
            raise Violation(f"{self._ids[key[0]]}: event {key[1]} is gone")
        session, line = key
        self._check_writer(owner, session, f"event {line} {row['name']}")
        self._check_line("events", session, line)
        session_id, event = self._ids[session], json.loads(row["body"])
        if row["seq"] <= self._seqs.get(session, 0):
            raise Violation(f"{session_id}: event {row['seq']} was written after {self._seqs[session]}")
        self._seqs[session] = row["seq"]
        self.stored.setdefault(session_id, {})[row["seq"]] = event
        self._check_turn(session_id, event)

    def _check_line(self, table: str, session: int, line: int) -> None:
        last = self._lines.get((table, session), 0)
        if line != last + 1:
            raise Violation(f"{self._ids[session]}: line {line} of {table} was written after {last}")
        self._lines[table, session] = line

    def _check_turn(self, session_id: str, event: dict[str, Any]) -> None:
        """A turn ends once, and before the next one begins."""
        turn = event.get("correlation_id")
        if event["event"] == TURN_BEGUN:
            if (running := self._running.get(session_id)) is not None:
                raise Violation(f"{session_id}: turn {turn} began while {running} was running")
            self._running[session_id] = turn
        elif event["event"] == TURN_DONE:
            if (session_id, str(turn)) in self.ends:
                raise Violation(f"{session_id}: turn {turn} ended twice")
            self.ends[session_id, str(turn)] = event["data"]
            self._running[session_id] = None

    def _turns(self, owner: Any, key: Key, row: Row | None) -> None:
        """What came of a turn is said once."""
        if row is None:
            return
        before = self._ended.get(key[0])
        if before is not None and (row["state"] != "ended" or row["result"] != before):
            raise Violation(f"turn {key[0]} had ended, and is {row['state']}: {row['result']!r:.200}")
        if row["state"] == "ended":
            self._ended[key[0]] = row["result"]

    # --- what is shown

    def published(self, owner: Any, event: PublishedEvent) -> None:
        """Nothing is published that is not stored, passing pieces and what has no number excepted."""
        if event.cursor is None or event.is_delta:
            return
        sequence = event.cursor.seq
        line = self.stored.get(str(event.session_id), {}).get(sequence)
        if line is None:
            raise Violation(f"{owner} publishes {event.name} {sequence}, which is not stored")
        if line["event"] != event.name:
            raise Violation(f"{owner} publishes {event.name} {sequence}, stored is {line['event']}")


Stored = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""The events of sessions by their numbers."""


class ShownStream:
    """What one client sees of a session, whichever members show it: everything that is stored, once and in order.

    `last` is the place up to which it has seen it. One that `is_left` is not followed any further.
    """

    def __init__(self, name: str, session_id: str, stored: Stored) -> None:
        self._name, self._session_id, self._stored = name, session_id, stored
        self.last: Cursor | None = None
        self.is_left = False

    def __str__(self) -> str:
        return self._name

    @property
    def missing(self) -> list[int]:
        """The events that are stored, and were not shown yet."""
        last = self.last.seq if self.last is not None else 0
        return [number for number in self._stored.get(self._session_id, {}) if number > last]

    def show(self, event: Mapping[str, Any], stream_id: str) -> None:
        name, place = event["event"], Cursor.of_event(event)
        if name in ("stream:gap", "stream:overflow", "stream:error"):
            raise Violation(f"{self} shows {name} after {self.last}: {event['data']}")
        if place is None:
            return
        if stream_id != str(place):
            raise Violation(f"{self} shows {name} {place} under the id {stream_id}")
        if name == "stream:connected":
            if self.last is not None:
                raise Violation(f"{self} begins anew after {self.last}")
        elif self.last is not None and self.last.covers(place):
            raise Violation(f"{self} shows {name} {place} after {self.last}")
        else:
            self._check(name, place, event)
        self.last = place

    def _check(self, name: str, place: Cursor, event: Mapping[str, Any]) -> None:
        stored = self._stored.get(self._session_id, {})
        if self.last is not None:
            skipped = [number for number in range(self.last.seq + 1, place.stored_before + 1) if number in stored]
            if skipped:
                raise Violation(f"{self} shows {name} {place} after {self.last}, and not {skipped}")
        if event["sequence"] != place.sequence:
            raise Violation(f"{self} shows {name} {place} with the number {event['sequence']}")
        if place.piece:
            return
        line = stored.get(place.seq)
        if line is None or (line["event"], line["data"]) != (name, event["data"]):
            raise Violation(f"{self} shows {name} {place}, stored is {line and line['event']}")
