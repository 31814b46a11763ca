"""Finding stored sessions: by id, by time, by what was said, by whether they are broken."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from amplifier_foundation.paths.home import get_amplifier_home

from .diagnosis import diagnose_transcript
from .events import parse_timestamp
from .messages import count_turns
from .store import (
    METADATA_FILENAME,
    TRANSCRIPT_FILENAME,
    load_metadata,
    load_transcript_with_lines,
    read_jsonl,
)

_BEGINNING = datetime.min.replace(tzinfo=UTC)


def resolve_session(ref: str, *, sessions_root: Path | None = None, project: str | None = None) -> Path:
    """Return the folder of the session that a path, an id or the unique beginning of one names.

    Raises:
        FileNotFoundError: there is none.
        ValueError: there are several.
    """
    if Path(ref).is_absolute():
        if (Path(ref) / METADATA_FILENAME).is_file():
            return Path(ref)
        raise FileNotFoundError(f"No session at {ref}")
    places = list(_session_dirs(sessions_root, project))
    matches = [place for place in places if place.name == ref] or [
        place for place in places if ref and place.name.startswith(ref)
    ]
    if not matches:
        raise FileNotFoundError(f"No session '{ref}' in {sessions_root or _default_root()}")
    if len(matches) > 1:
        raise ValueError(f"Ambiguous session '{ref}': {', '.join(str(place) for place in matches)}")
    return matches[0]


def find_sessions(
    *,
    sessions_root: Path | None = None,
    project: str | None = None,
    after: str | None = None,
    before: str | None = None,
    keyword: str | None = None,
    status: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Return sessions, the newest first, that satisfy every condition given.

    Args:
        after: an ISO timestamp, exclusive like `before`; a session that does not say when it began passes both.
        keyword: words that its transcript contains, in any case.
        status: `healthy` or `broken`.
    """
    lower = parse_timestamp(after) if after else None
    upper = parse_timestamp(before) if before else None
    found = []
    for place in _session_dirs(sessions_root, project):
        metadata = _read_metadata(place)
        if metadata is None:
            continue
        created = _created(metadata)
        if created is not None and ((lower and created <= lower) or (upper and created >= upper)):
            continue
        if keyword is not None and not _mentions(place, keyword):
            continue
        if status is not None and _diagnosis(place)[0] != status:
            continue
        found.append((created or _BEGINNING, _summary(place, metadata)))
    found.sort(key=lambda item: item[0], reverse=True)
    return [summary for _, summary in found[:limit]]


def session_info(session_dir: Path) -> dict[str, Any]:
    """Return what is known of one session, its turns and its health included."""
    metadata = _read_metadata(session_dir) or {}
    state, failure_modes = _diagnosis(session_dir)
    turns = metadata.get("turn_count")
    if turns is None and (session_dir / TRANSCRIPT_FILENAME).is_file():
        turns = count_turns(list(read_jsonl(session_dir / TRANSCRIPT_FILENAME)))
    return {**_summary(session_dir, metadata), "turn_count": turns, "status": state, "failure_modes": failure_modes}


def _default_root() -> Path:
    return get_amplifier_home() / "projects"


def _session_dirs(sessions_root: Path | None, project: str | None) -> Iterator[Path]:
    root = sessions_root or _default_root()
    for path in sorted(root.glob(f"*/sessions/*/{METADATA_FILENAME}")):
        if project is None or path.parents[2].name == project:
            yield path.parent


def _read_metadata(session_dir: Path) -> dict[str, Any] | None:
    try:
        metadata = load_metadata(session_dir)
    except (OSError, ValueError):
        return None
    return metadata if isinstance(metadata, dict) else None


def _created(metadata: dict[str, Any]) -> datetime | None:
    try:
        return parse_timestamp(metadata["created"])
    except (KeyError, ValueError, AttributeError):
        return None


def _mentions(session_dir: Path, keyword: str) -> bool:
    wanted = keyword.lower()
    path = session_dir / TRANSCRIPT_FILENAME
    entries = read_jsonl(path) if path.is_file() else iter(())
    return any(wanted in json.dumps(entry, ensure_ascii=False).lower() for entry in entries)


def _diagnosis(session_dir: Path) -> tuple[str, list[str]]:
    try:
        result = diagnose_transcript(load_transcript_with_lines(session_dir))
    except (OSError, ValueError):
        return "unknown", []
    return result["status"], result["failure_modes"]


def _summary(session_dir: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "session_id": metadata.get("session_id") or session_dir.name,
        "path": session_dir,
        "project": session_dir.parent.parent.name,
        "created": metadata.get("created"),
        "bundle": metadata.get("bundle"),
        "model": metadata.get("model"),
    }
