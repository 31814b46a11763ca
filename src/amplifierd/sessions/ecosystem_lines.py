"""The lines of sessions that other applications of the ecosystem keep, as lines of ours."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from amplifier_foundation.session import is_real_user_message
from amplifierd.session_store.protocol import Message, StoredEvent
from amplifierd.session_store.record import SessionRecord

_ROLES = frozenset({"user", "assistant", "tool", "system"})
_OWN_KEYS = frozenset({"id", "timestamp", "ts", "role", "content", "turn", "correlation_id", "line_num"})
_EVENT_KEYS = frozenset(
    {"seq", "ts", "timestamp", "lvl", "level", "event", "session_id", "parent_id", "correlation_id", "data"}
)


def as_messages(entries: Iterable[Mapping[str, Any]], record: SessionRecord) -> list[Message]:
    """Return a transcript of ours: ids that stay the same, and the number of the turn, which a person's prompt begins.

    What a person did not write is not a user's message here; the context gets it in its own role again.
    """
    messages: list[Message] = []
    turn = 0
    for number, entry in enumerate(entries):
        role = entry.get("role")
        if not isinstance(role, str):
            continue
        is_prompt = is_real_user_message(entry)
        turn += is_prompt
        rest = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
        if role not in _ROLES or (role == "user" and not is_prompt):
            metadata = rest.get("metadata")
            rest["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "requested_role": role}
            role = "system"
        stamp = entry.get("timestamp") or entry.get("ts")
        head = {
            "id": _message_id(record.session_id, number),
            "timestamp": stamp if isinstance(stamp, str) else record.created_at,
            "role": role,
            "content": _content(entry.get("content")),
            "turn": turn,
        }
        messages.append({**head, **rest})
    return messages


def as_events(entries: Iterable[Mapping[str, Any]], record: SessionRecord) -> Iterator[StoredEvent]:
    """Yield events of ours, numbered in the order of the file."""
    for seq, entry in enumerate(entries, start=1):
        event, data = entry.get("event"), entry.get("data")
        rest = {key: value for key, value in entry.items() if key not in _EVENT_KEYS}
        yield {
            "seq": seq,
            "ts": entry.get("ts") or entry.get("timestamp") or record.created_at,
            "lvl": entry.get("lvl") or entry.get("level") or "INFO",
            "event": event if isinstance(event, str) and event else "unknown",
            "session_id": record.session_id,
            "parent_id": record.parent_session_id,
            "correlation_id": entry.get("correlation_id"),
            "data": {**rest, **data} if isinstance(data, dict) else rest if data is None else {**rest, "data": data},
        }


def _content(value: Any) -> Any:
    if value is None or isinstance(value, str | list):
        return value
    return json.dumps(value, ensure_ascii=False)


def _message_id(session_id: str, number: int) -> str:
    return f"msg_{hashlib.sha256(f'{session_id}:{number}'.encode()).hexdigest()[:32]}"
