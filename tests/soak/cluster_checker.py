"""Checks what a run with a cluster left, by a program that shares no code with what it checks.

    python tests/soak cluster_checker postgresql://… FOLDER

Nothing that was shown may be lost and nothing may be there twice: no turn, no message, no event, no run of a tool. It
prints what it counted, and every breach that it found, and ends with 1 if there is one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
from cluster_evidence import Evidence, StoredSession
from cluster_rules import lines, numbers, receipts, shown, submissions, transcript, turns, writes

_OF_A_SESSION = (lines, writes, transcript, receipts, turns)


def check(evidence: Evidence) -> tuple[list[str], Counter[str]]:
    """Return every breach in words, and how much was looked at."""
    counted: Counter[str] = Counter()
    found, known = [*_world(evidence)], set[str]()
    for tree in evidence.trees():
        known.add(tree[0].session_id)
        found += _breaches(evidence, tree, counted)
    gone = {each.session_id for each in evidence.submissions if each.is_accepted} - known
    found += [f"{session_id}: a turn was accepted, and the session is gone" for session_id in gone]
    return found, counted


def _world(evidence: Evidence) -> Iterator[str]:
    if evidence.complaints:
        yield f"the provider was asked with tool calls without results: {evidence.complaints[:500]}"
    for line, count in Counter(evidence.runs).items():
        if count > 1:
            yield f"a tool ran twice: {line!r} {count} times"


def _breaches(evidence: Evidence, tree: Sequence[StoredSession], counted: Counter[str]) -> Iterator[str]:
    root = tree[0]
    for session in tree:
        counted["sessions"] += 1
        for rule in _OF_A_SESSION:
            yield from (f"{session.session_id}: {breach}" for breach in rule(evidence, session, counted))
    yield from (f"{root.session_id}: {breach}" for breach in submissions(evidence, root, counted))
    yield from (f"{root.session_id}: {breach}" for breach in numbers(tree))
    for stream in evidence.shown(root.session_id):
        yield from (f"{stream.name}: {breach}" for breach in shown(tree, stream, counted))


def main() -> int:
    address, folder = sys.argv[1:]
    with psycopg.connect(address) as connection:
        found, counted = check(Evidence(connection, Path(folder)))
    sys.stdout.writelines(f"  {count:7} {what}\n" for what, count in sorted(counted.items()))
    sys.stdout.writelines(f"BREACH {breach}\n" for breach in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
