"""Sessions, messages and events to put into a store."""

from __future__ import annotations

from typing import Any

from amplifierd.store.protocol import NewSession
from amplifierd.store.record import SessionRecord, new_session_id, now


def new_session(session_id: str | None = None, **fields: Any) -> NewSession:
    """Return a session with a plan; what is not a field of its record is one of `NewSession`."""
    beginning = {key: fields.pop(key) for key in ("plan", "messages", "events", "documents", "parts") if key in fields}
    record = SessionRecord(
        **{"session_id": session_id or new_session_id(), "working_dir": "/tmp", "created_at": now(), **fields}
    )
    return NewSession(record, **{"plan": {"session": {"orchestrator": "loop-basic"}}, **beginning})


def message(text: str, number: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": f"m{number}", "timestamp": now(), "role": "user", "content": text, "turn": number, **more}


def event(seq: int, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "ts": now(), "lvl": "info", "event": "tool:pre", "session_id": "s", "data": data}
