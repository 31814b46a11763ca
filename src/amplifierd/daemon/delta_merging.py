"""Pieces of one block, put together: what a client that reads slowly gets in place of every single one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from amplifierd.session_store.json_lines import encoded

from .published_event import PublishedEvent

_TEXTS = ("text", "delta")
"""The keys under which pieces have their text."""

_OF_ONE_PIECE = frozenset({*_TEXTS, "sequence", "timestamp"})


def merged(events: Sequence[PublishedEvent]) -> list[PublishedEvent]:
    """Return events in their order, with neighbouring pieces of one block as one piece where the last one stands."""
    found: list[PublishedEvent] = []
    for block, run in groupby(events, key=_block):
        pieces = [*run]
        found += pieces if block is None or len(pieces) == 1 else [_one(pieces)]
    return found


def _block(event: PublishedEvent) -> bytes | None:
    """Return what pieces of one block have in common, None for what is not a piece of text."""
    if not event.is_delta:
        return None
    envelope = event.envelope()
    data = envelope.get("data")
    if not isinstance(data, dict) or _text_key(data) is None:
        return None
    rest = {key: value for key, value in data.items() if key not in _OF_ONE_PIECE}
    return encoded([event.name, event.session_id, event.root_id, envelope.get("correlation_id"), _text_key(data), rest])


def _one(pieces: Sequence[PublishedEvent]) -> PublishedEvent:
    envelopes = [piece.envelope() for piece in pieces]
    last, key = pieces[-1], _text_key(envelopes[0]["data"])
    text = "".join(envelope["data"][key] for envelope in envelopes)
    whole = {**envelopes[-1], "data": {**envelopes[-1]["data"], key: text}}
    one = PublishedEvent(
        last.name,
        encoded(whole),
        session_id=last.session_id,
        root_id=last.root_id,
        cursor=last.cursor,
        is_delta=True,
    )
    one.number = last.number
    return one


def _text_key(data: dict[str, Any]) -> str | None:
    return next((key for key in _TEXTS if isinstance(data.get(key), str)), None)
