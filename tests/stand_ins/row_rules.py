"""Rules for the rows of one session: nothing is missing, nothing is there twice, and nobody wrote who may not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cluster_evidence import Evidence, StoredSession, Write, is_piece

Breaches = Iterator[str]


def lines(evidence: Evidence, session: StoredSession, counted: Counter[str]) -> Breaches:
    """Nothing is missing between two lines, and nothing is there twice."""
    placed = [line for line, _, _ in session.events]
    if placed != [*range(1, len(placed) + 1)]:
        yield f"the lines of events are not numbered one by one: {_jumps(placed)}"
    counts = [seq for _, seq, _ in session.events]
    if any(later <= earlier for earlier, later in pairwise(counts)):
        yield f"the numbers of events do not grow: {_jumps(counts)}"
    for _, seq, event in session.events:
        if event["seq"] != seq or is_piece(event["event"]):
            yield f"event {seq} is stored as {event['event']} {event['seq']}"
    placed = [line for line, _ in session.messages]
    if placed and placed != [*range(placed[0], placed[0] + len(placed))]:
        yield f"the lines of messages are not numbered one by one: {_jumps(placed)}"
    for message_id, count in Counter(message["id"] for _, message in session.messages).items():
        if count > 1:
            yield f"message {message_id} is there {count} times"
    if session.record["message_count"] != len(session.messages):
        yield f"{session.record['message_count']} messages are counted, {len(session.messages)} are stored"
    counted["messages"] += len(session.messages)
    counted["events"] += len(session.events)


def numbers(tree: Sequence[StoredSession]) -> Breaches:
    taken = Counter(seq for session in tree for _, seq, _ in session.events)
    for seq, count in taken.items():
        if count > 1:
            yield f"{count} events of the tree have the number {seq}"


def writes(evidence: Evidence, session: StoredSession, counted: Counter[str]) -> Breaches:
    """Epochs only grow, and every line was written by whoever had the hold at that moment."""
    last = 0
    for before, epoch in session.epochs:
        if epoch < last or (before is not None and before != last):
            yield f"the epoch went from {last} ({before}) to {epoch}"
        counted["takings"] += epoch > last
        last = epoch
    for kind, written in session.writes.items():
        reached = 0
        for write in written:
            if reached or write.epoch is not None:  # what a session begins with needs no hold
                yield from (
                    f"line {write.line} of {kind} was written {how}" for how in _write(evidence, write, reached)
                )
            reached = max(reached, write.epoch or 0)
    known = {write.line for write in session.writes["events"]}
    if lost := known - {line for line, _, _ in session.events}:
        yield f"events are gone that were written: lines {sorted(lost)[:5]}"


def _write(evidence: Evidence, write: Write, reached: int) -> Breaches:
    if write.epoch is None or write.member_id is None:
        yield f"without a hold, by {write.who}"
        return
    if write.epoch < reached:
        yield f"under epoch {write.epoch}, after {reached}"
    if evidence.members.get(write.member_id) != write.who:
        yield f"by {write.who} while {write.member_id} held the session"
    if write.state not in ("active", "draining"):
        yield f"by {write.who}, which was {write.state}"


def _jumps(numbers: Sequence[int]) -> str:
    return (
        ", ".join(f"{before} → {after}" for before, after in pairwise(numbers) if after != before + 1)[:300]
        or f"{numbers[:3]}"
    )
