"""A session's event log, cut at a moment in time."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .messages import get_turn_boundaries
from .store import read_jsonl, write_jsonl


def slice_events_to_timestamp(
    events_path: Path,
    cutoff_timestamp: str,
    output_path: Path,
    new_session_id: str | None = None,
    parent_session_id: str | None = None,
) -> int:
    """Copy the events up to and including a moment, and those without a time, and return their number.

    With `new_session_id` the copies belong to that session, and name the session they came from as their parent.

    Raises:
        FileNotFoundError: there is no event log.
        ValueError: the moment is not an ISO timestamp.
    """
    cutoff = parse_timestamp(cutoff_timestamp)

    def kept() -> Iterator[dict[str, Any]]:
        for event in read_jsonl(events_path):
            stamp = _stamp(event)
            if stamp is None or _is_by(stamp, cutoff):
                yield _of_session(event, new_session_id, parent_session_id) if new_session_id else event

    if not events_path.is_file():
        raise FileNotFoundError(f"No events at {events_path}")
    events = list(kept())
    write_jsonl(output_path, events)
    return len(events)


def get_last_timestamp_for_turn(transcript_path: Path, turn: int) -> str | None:
    """Return the latest time that a turn's messages carry, `None` when they carry none.

    Raises:
        FileNotFoundError: there is no transcript.
        ValueError: there is no such turn.
    """
    messages = list(read_jsonl(transcript_path))
    boundaries = [*get_turn_boundaries(messages), len(messages)]
    if not 1 <= turn < len(boundaries):
        raise ValueError(f"Turn {turn} is out of range: the transcript has {len(boundaries) - 1} turns")
    stamps = (_stamp(message) for message in reversed(messages[boundaries[turn - 1] : boundaries[turn]]))
    return next((stamp for stamp in stamps if stamp is not None), None)


def slice_events_for_fork(
    events_path: Path,
    transcript_path: Path,
    turn: int,
    output_path: Path,
    new_session_id: str | None = None,
    parent_session_id: str | None = None,
) -> int:
    """Copy the events up to the end of a turn and return their number; none when the turn carries no time."""
    cutoff = get_last_timestamp_for_turn(transcript_path, turn)
    if cutoff is None:
        write_jsonl(output_path, [])
        return 0
    return slice_events_to_timestamp(events_path, cutoff, output_path, new_session_id, parent_session_id)


def count_events(path: Path) -> int:
    return sum(1 for _ in read_jsonl(path)) if path.is_file() else 0


def get_event_summary(path: Path) -> dict[str, Any]:
    """Return how many events of which name a log holds, and its first and last time."""
    names: Counter[str] = Counter()
    stamps: list[str] = []
    for event in read_jsonl(path) if path.is_file() else ():
        names[str(event.get("event", "unknown"))] += 1
        if (stamp := _stamp(event)) is not None:
            stamps = [stamps[0], stamp] if stamps else [stamp]
    return {
        "total_events": names.total(),
        "event_types": dict(names),
        "first_timestamp": stamps[0] if stamps else None,
        "last_timestamp": stamps[-1] if stamps else None,
    }


def parse_timestamp(text: str) -> datetime:
    """Return the moment an ISO timestamp names; without a zone it is UTC.

    Raises:
        ValueError: it is not an ISO timestamp.
    """
    moment = datetime.fromisoformat(re.sub(r"([+-]\d{2})(\d{2})$", r"\1:\2", text.strip()))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _stamp(entry: Mapping[str, Any]) -> str | None:
    stamp = entry.get("ts") or entry.get("timestamp")
    return stamp if isinstance(stamp, str) else None


def _is_by(stamp: str, cutoff: datetime) -> bool:
    try:
        return parse_timestamp(stamp) <= cutoff
    except ValueError:
        return True  # no time that could be compared counts as no time


def _of_session(event: dict[str, Any], session_id: str, parent_id: str | None) -> dict[str, Any]:
    original = event.get("session_id")
    moved = {**event, "session_id": session_id}
    return {**moved, "parent_session_id": parent_id or original} if original else moved
