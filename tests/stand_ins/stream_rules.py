"""Rules for what clients saw: one stream each, of everything that is stored and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from cluster_evidence import (
    BEGUN,
    DONE,
    INTENT,
    OUTCOME,
    PIECE,
    Json,
    ShownStream,
    StoredSession,
    is_piece,
    text_of,
)

from amplifierd.session_store.cursor import Cursor

Breaches = Iterator[str]

_RECENT_S = 1.0
"""What was said of an answer in the last moment before its process died may be lost."""


def shown(tree: Sequence[StoredSession], stream: ShownStream, counted: Counter[str]) -> Breaches:
    """A client saw one stream: every event that is stored, each once and in order, and none that is not."""
    stored = {seq: (session.session_id, event) for session in tree for _, seq, event in session.events}
    last = Cursor(0, 0)
    seen: set[int] = set()
    for event in stream.events:
        name, place = event["event"], Cursor.of_event(event)
        if name in ("stream:gap", "stream:overflow", "stream:error"):
            yield f"after {last} came {name}: {event['data']}"
        if place is None or name.startswith("stream:"):
            continue
        if last.covers(place):
            yield f"{name} {place} came after {last}"
        else:
            last = place
        if bool(place.piece) != is_piece(name) or event["sequence"] != place.sequence:
            yield f"{name} is numbered {event['sequence']}, and stands at {place}"
        if not place.piece:
            seen.add(place.seq)
            yield from _same(event, stored.get(place.seq))
    if missed := sorted(seq for seq in stored if seq not in seen and seq <= last.seq):
        names = [stored[seq][1]["event"] for seq in missed[:5]]
        yield f"{len(missed)} events were never shown: {missed[:5]} {names}"
    if stored and last.seq < max(stored):
        yield f"nothing was shown after {last}, and {max(stored)} is stored"
    counted["shown events"] += len(seen)
    counted["connections of clients"] += max((int(event["link"]) for event in stream.events), default=0)
    yield from _ends(stream)
    yield from _pieces(tree, stream)


def _ends(stream: ShownStream) -> Breaches:
    """The end of a turn was shown once, whoever told it."""
    told: dict[tuple[str, str], list[Json]] = {}
    for event in stream.events:
        if event["event"] == DONE:
            told.setdefault((event["session_id"], event["correlation_id"]), []).append(event)
    for (_, correlation_id), ends in told.items():
        if len(ends) > 1:
            found = [f"{end['sequence']} {end['data']['status']} {end['data'].get('error')!r:.200}" for end in ends]
            yield f"{correlation_id} ended {len(ends)} times: {found}"


def _same(event: Json, stored: tuple[str, Json] | None) -> Breaches:
    number = event["sequence"]
    if stored is None:
        yield f"{event['event']} {number} was shown and is not stored"
        return
    session_id, line = stored
    if (line["event"], session_id) != (event["event"], event["session_id"]):
        yield f"{number} was shown as {event['event']} and is stored as {line['event']}"
    elif event["event"] in (BEGUN, DONE, INTENT, OUTCOME) and event["data"] != line["data"]:
        yield f"{event['event']} {number} was shown as {event['data']!r:.100} and is stored as {line['data']!r:.100}"


def _pieces(tree: Sequence[StoredSession], stream: ShownStream) -> Breaches:
    """What was seen of an answer, but for its last moment, is in a message, in the same order."""
    answers: dict[tuple[str, str], list[Json]] = {}
    for event in stream.events:
        if event["event"] == PIECE:
            answers.setdefault((event["session_id"], event["data"]["request_id"]), []).append(event)
    texts = {
        session.session_id: [
            text_of(message).split() for _, message in session.messages if message["role"] == "assistant"
        ]
        for session in tree
    }
    for (session_id, _), pieces in answers.items():
        until = float(pieces[-1]["at"]) - _RECENT_S
        words = "".join(piece["data"]["text"] for piece in pieces if piece["at"] <= until).split()
        if words and not any(_is_within(words, text) for text in texts.get(session_id, ())):
            yield f"of {session_id} was shown, and is not stored: {' '.join(words)!r:.200}"


def _is_within(words: Sequence[str], text: Sequence[str]) -> bool:
    rest = iter(text)
    return all(word in rest for word in words)
