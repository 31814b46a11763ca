"""Ways to spoil what a run left, each with words of the breach that the checker has to find then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from cluster_checker import check
from cluster_evidence import RUNS, SHOWN, SUBMITTED, Evidence

Lines = list[str]


def _row(table: str, where: str) -> str:
    """Name one row of a session."""
    found = f"SELECT session, line FROM amplifier.{table} WHERE session = {{session}} AND {where}"
    return f"(session, line) = ({found} ORDER BY line DESC LIMIT 1)"


_ENDED, _BEGUN = _row("events", "name = 'execution:done'"), _row("events", "name = 'user_message:saved'")
_INTENT, _OUTCOME = _row("events", "name = 'tool:intent'"), _row("events", "name = 'tool:outcome'")
_RESULT, _CALLS = _row("messages", 'body LIKE \'%"role":"tool"%\''), _row("messages", "body LIKE '%\"tool_calls\"%'")
_COPY = "INSERT INTO amplifier.{table} SELECT session, 9000 + line, {columns}, body FROM amplifier.{table} WHERE "

IN_THE_STORE = {
    f"DELETE FROM amplifier.events WHERE {_ENDED}": "ended 0 times",
    f"DELETE FROM amplifier.events WHERE {_BEGUN}": "not numbered one by one",
    f"DELETE FROM amplifier.events WHERE {_INTENT}": "does not follow an intent",
    f"DELETE FROM amplifier.messages WHERE {_RESULT}": "calls have no result",
    f"DELETE FROM amplifier.messages WHERE {_CALLS}": "a result without a call",
    f"UPDATE amplifier.events SET seq = seq + 1 WHERE {_INTENT}": "is stored as",
    f"UPDATE amplifier.events SET body = replace(body, 'sha256:', 'sha256:0') WHERE {_INTENT}": "of another input",
    f"UPDATE amplifier.events SET body = replace(body, ' done', ' gone') WHERE {_OUTCOME}": "not what its receipt says",
    f"{_COPY.format(table='messages', columns='message_id')}{_RESULT}": "is there 2 times",
    f"{_COPY.format(table='events', columns='9000 + seq, name')}{_ENDED}": "ended 2 times",
    "UPDATE audit.writes SET who = 'someone' WHERE session = {session} AND epoch > 0": "by someone while",
    "UPDATE audit.writes SET epoch = 1 WHERE session = {session} AND epoch > 1 AND line > 9": "under epoch 1, after",
    "UPDATE audit.writes SET state = 'fenced' WHERE session = {session} AND epoch > 0": "which was fenced",
    "UPDATE audit.holds SET epoch = 0 WHERE session = {session} AND epoch > 1": "the epoch went from",
}
"""Statements about the session with the number `session`."""


def _without_a_stored_event(lines: Lines) -> Lines:
    """Leave out the first event that is stored; that a turn is queued, for one, is only told."""
    index = next(index for index, line in enumerate(lines) if json.loads(line)["sequence"] is not None)
    return [*lines[:index], *lines[index + 1 :]]


IN_THE_FOLDER: Sequence[tuple[str, Callable[[Lines], Lines], str]] = (
    (RUNS, lambda lines: [*lines, lines[0]], "a tool ran twice"),
    (RUNS, lambda lines: [line for line in lines if not line.startswith("end")], "has not ended"),
    (SHOWN, _without_a_stored_event, "were never shown"),
    (SHOWN, lambda lines: [*lines, lines[-1]], "came after"),
    (SHOWN, lambda lines: lines[:3], "nothing was shown after"),
    (SHOWN, lambda lines: [line.replace('"execution:done"', '"execution:gone"') for line in lines], "is stored as"),
    (SUBMITTED, lambda lines: [*lines, lines[-1].replace('"key": "', '"key": "x')], "was submitted twice"),
)


def unseen(connection: psycopg.Connection[Any], folder: Path, session_id: str, copy: Path) -> list[str]:
    """Spoil what is left of one session in every way, and return the ways that the checker does not notice."""
    found = connection.execute("SELECT number FROM amplifier.sessions WHERE session_id = %s", [session_id]).fetchone()
    assert found is not None
    unnoticed = []
    for statement, words in IN_THE_STORE.items():
        with connection.transaction(force_rollback=True):
            changed = connection.execute(statement.format(session=found[0]).encode()).rowcount
            if not changed or not _finds(Evidence(connection, folder, frozenset({session_id})), words):
                unnoticed.append(f"{statement} ({changed} rows)")
    for name, spoil, words in IN_THE_FOLDER:
        for kept in (SUBMITTED, RUNS, *(f"{SHOWN}/{path.name}" for path in (folder / SHOWN).glob(f"{session_id}.*"))):
            (copy / kept).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / kept, copy / kept)
        path = next((copy / SHOWN).glob(f"{session_id}.*")) if name == SHOWN else copy / name
        lines = [line for line in path.read_text().splitlines() if name != SUBMITTED or session_id in line]
        path.write_text("".join(f"{line}\n" for line in spoil(lines)))
        if not _finds(Evidence(connection, copy, frozenset({session_id})), words):
            unnoticed.append(f"{name}: {words}")
        shutil.rmtree(copy)
    return unnoticed


def _finds(evidence: Evidence, words: str) -> bool:
    return any(words in breach for breach in check(evidence)[0])
