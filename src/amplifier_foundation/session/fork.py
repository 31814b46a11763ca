"""A new session that begins where a turn of another one ended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .events import slice_events_for_fork
from .messages import (
    count_turns,
    find_orphaned_tool_calls,
    first_text,
    shorten,
    slice_to_turn,
)
from .store import (
    EVENTS_FILENAME,
    METADATA_FILENAME,
    TRANSCRIPT_FILENAME,
    load_metadata,
    load_transcript,
    write_jsonl,
    write_metadata,
    write_transcript,
)

_PREVIEW_LENGTH = 100


@dataclass
class ForkResult:
    """The new session; `messages` is filled for a fork in memory, `session_dir` for one on disk."""

    session_id: str
    session_dir: Path | None
    parent_id: str
    forked_from_turn: int
    message_count: int
    messages: list[dict[str, Any]] | None = None
    events_count: int = 0


def fork_session(
    parent_session_dir: Path,
    *,
    turn: int | None = None,
    new_session_id: str | None = None,
    target_dir: Path | None = None,
    include_events: bool = True,
    handle_orphaned_tools: str = "complete",
) -> ForkResult:
    """Copy a session up to the end of a turn, the last one by default, into a session of its own.

    Raises:
        FileNotFoundError: the session has no transcript.
        ValueError: there is no such turn.
    """
    messages = _load(parent_session_dir)
    turn = _checked_turn(messages, turn)
    sliced = slice_to_turn(messages, turn, handle_orphaned_tools=handle_orphaned_tools)
    parent = _load_metadata(parent_session_dir)
    parent_id = parent.get("session_id") or parent_session_dir.name
    session_id = new_session_id or str(uuid.uuid4())
    session_dir = (target_dir or parent_session_dir.parent) / session_id
    session_dir.mkdir(parents=True)
    write_transcript(session_dir, sliced)
    events = _copy_events(parent_session_dir, session_dir, turn, session_id, parent_id) if include_events else 0
    now = datetime.now(UTC).isoformat()
    write_metadata(
        session_dir,
        {
            "session_id": session_id,
            "parent_id": parent_id,
            "forked_from_turn": turn,
            "forked_at": now,
            "created": now,
            "turn_count": turn,
            "bundle": parent.get("bundle"),
            "model": parent.get("model"),
        },
    )
    return ForkResult(session_id, session_dir, parent_id, turn, len(sliced), events_count=events)


def fork_session_in_memory(
    messages: list[dict[str, Any]],
    *,
    turn: int | None = None,
    parent_id: str | None = None,
    handle_orphaned_tools: str = "complete",
) -> ForkResult:
    """Return a conversation up to the end of a turn as a session of its own, without any file."""
    session_id, parent = str(uuid.uuid4()), parent_id or "unknown"
    if count_turns(messages) == 0:
        return ForkResult(session_id, None, parent, 0, 0, messages=[])
    turn = _checked_turn(messages, turn)
    sliced = slice_to_turn(messages, turn, handle_orphaned_tools=handle_orphaned_tools)
    return ForkResult(session_id, None, parent, turn, len(sliced), messages=sliced)


def get_fork_preview(session_dir: Path, turn: int) -> dict[str, Any]:
    """Say what a fork at that turn would hold, without making it.

    Raises:
        FileNotFoundError: the session has no transcript.
        ValueError: there is no such turn.
    """
    messages = _load(session_dir)
    _checked_turn(messages, turn)
    boundary = slice_to_turn(messages, turn, handle_orphaned_tools="remove")
    orphans = find_orphaned_tool_calls(messages[: len(boundary)])

    def last(role: str) -> str:
        texts = (first_text(message) for message in reversed(boundary) if message.get("role") == role)
        return shorten(next((text for text in texts if text), ""), _PREVIEW_LENGTH)

    return {
        "parent_id": _load_metadata(session_dir).get("session_id") or session_dir.name,
        "turn": turn,
        "max_turns": count_turns(messages),
        "message_count": len(boundary),
        "has_orphaned_tools": bool(orphans),
        "orphaned_tool_count": len(orphans),
        "last_user_message": last("user"),
        "last_assistant_message": last("assistant"),
    }


def list_session_forks(session_dir: Path, sessions_root: Path | None = None) -> list[dict[str, Any]]:
    """Return the sessions that were forked from this one, the newest first."""
    session_id = _load_metadata(session_dir).get("session_id") or session_dir.name
    forks = [
        {
            "session_id": metadata.get("session_id") or place.name,
            "session_dir": place,
            "forked_from_turn": metadata.get("forked_from_turn"),
            "forked_at": metadata.get("forked_at"),
            "turn_count": metadata.get("turn_count"),
        }
        for place, metadata in _sessions(sessions_root or session_dir.parent)
        if metadata.get("parent_id") == session_id and metadata.get("forked_from_turn") is not None
    ]
    return sorted(forks, key=lambda fork: str(fork["forked_at"] or ""), reverse=True)


def get_session_lineage(session_dir: Path, sessions_root: Path | None = None) -> dict[str, Any]:
    """Return where a session comes from, its nearest ancestor first, and which sessions come from it."""
    root = sessions_root or session_dir.parent
    own = _load_metadata(session_dir)
    session_id = own.get("session_id") or session_dir.name
    ancestors: list[str] = []
    parent = own.get("parent_id")
    while isinstance(parent, str) and parent not in (session_id, *ancestors) and "/" not in parent:
        metadata = _load_metadata(root / parent)
        if not metadata:
            break
        ancestors.append(parent)
        parent = metadata.get("parent_id")
    return {
        "session_id": session_id,
        "parent_id": own.get("parent_id"),
        "forked_from_turn": own.get("forked_from_turn"),
        "ancestors": ancestors,
        "children": [fork["session_id"] for fork in list_session_forks(session_dir, root)],
        "depth": len(ancestors),
    }


def _load(session_dir: Path) -> list[dict[str, Any]]:
    if not (session_dir / TRANSCRIPT_FILENAME).is_file():
        raise FileNotFoundError(f"No {TRANSCRIPT_FILENAME} in {session_dir}")
    return load_transcript(session_dir)


def _load_metadata(session_dir: Path) -> dict[str, Any]:
    try:
        metadata = load_metadata(session_dir)
    except (OSError, ValueError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _sessions(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(root.glob(f"*/{METADATA_FILENAME}")):
        if metadata := _load_metadata(path.parent):
            yield path.parent, metadata


def _checked_turn(messages: list[dict[str, Any]], turn: int | None) -> int:
    turns = count_turns(messages)
    if turns == 0:
        raise ValueError("No user messages: there is no turn to fork from; turn is out of range")
    if turn is None:
        return turns
    if not 1 <= turn <= turns:
        raise ValueError(f"Turn {turn} is out of range: the session has {turns} turns")
    return turn


def _copy_events(parent_dir: Path, session_dir: Path, turn: int, session_id: str, parent_id: str) -> int:
    target = session_dir / EVENTS_FILENAME
    source = parent_dir / EVENTS_FILENAME
    try:
        return slice_events_for_fork(source, parent_dir / TRANSCRIPT_FILENAME, turn, target, session_id, parent_id)
    except (OSError, ValueError):
        write_jsonl(target, [])
        return 0
