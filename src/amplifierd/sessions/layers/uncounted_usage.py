"""What a session used after its record was last written, found in its events: a crash leaves the record behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

import amplifier_core
from amplifierd.sessions.events.journal import CHANGES
from amplifierd.store.protocol import StoredEvent
from amplifierd.store.record import SessionRecord, checked_record

from .receipts import INTENT
from .request_parts import REQUEST_STORED, RESPONSE_STORED
from .usage import Usage

TURN_BEGUN, TURN_DONE = "user_message:saved", "execution:done"


def counted_until(record: SessionRecord, last_seq: int) -> int:
    """Return the number of the last event that the usage in a record includes."""
    if record.usage_seq is not None:
        return record.usage_seq
    return 0 if record.usage is None else last_seq


def brought_up(record: SessionRecord, events: Sequence[StoredEvent]) -> SessionRecord:
    """Return a record that counts what the last end of a turn among later events says.

    The two are written one after the other: where no file could be made, or the process was killed between them, the
    record does not say yet how the turn ended.
    """
    ends = [event[CHANGES] for event in events if event.get("event") == TURN_DONE and CHANGES in event]
    ends = [end for end in ends if isinstance(end, dict) and isinstance(end.get("usage_seq"), int)]
    if not ends or ends[-1]["usage_seq"] <= (record.usage_seq or 0):
        return record
    known = {name: value for name, value in ends[-1].items() if name in SessionRecord.model_fields}
    return checked_record(**{**record.fields(), **known})


def used_in(events: Sequence[StoredEvent]) -> Usage:
    """Return what was used while these events happened; what a response did not report cannot be known any more."""
    models = {str(data.get("request_id")): data.get("model") for data in _data(events, REQUEST_STORED)}
    used = Usage(
        tool_calls=len(list(_data(events, INTENT))),
        turns=len(list(_data(events, TURN_BEGUN))),
        seconds=_seconds_in(events),
    )
    for response in _data(events, RESPONSE_STORED):
        try:
            reported = amplifier_core.Usage.model_validate(response.get("usage"))
        except ValidationError:
            continue
        model = response.get("model") or models.get(str(response.get("request_id")))
        used += Usage.of_call(reported, str(model or ""))
    return used


def last_mark(events: Sequence[StoredEvent]) -> StoredEvent | None:
    """Return the last event with which a turn began or ended."""
    return next((event for event in reversed(events) if event.get("event") in (TURN_BEGUN, TURN_DONE)), None)


def _data(events: Iterable[StoredEvent], name: str) -> Iterable[Mapping[str, Any]]:
    return (event["data"] for event in events if event.get("event") == name and isinstance(event.get("data"), dict))


def _seconds_in(events: Sequence[StoredEvent]) -> float:
    """Return how long turns ran: from the beginning of each to its end, or to the last sign of life."""
    total, begun, latest = 0.0, None, None
    for event in events:
        latest = _moment(event.get("ts")) or latest
        if event.get("event") == TURN_BEGUN:
            begun = latest
        elif event.get("event") == TURN_DONE:
            total, begun = total + _between(begun, latest), None
    return total + _between(begun, latest)


def _between(begun: datetime | None, ended: datetime | None) -> float:
    return max(0.0, (ended - begun).total_seconds()) if begun and ended else 0.0  # the clock may have been set back


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
