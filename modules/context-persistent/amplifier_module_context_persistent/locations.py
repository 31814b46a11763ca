"""Where a session's conversation is kept by default."""

import hashlib
from pathlib import Path

from amplifier_kit.mounting import project_slug

_FILE = "context-messages.jsonl"


def derive_transcript_path(working_dir: Path, session_id: str) -> Path:
    """Return the file of a session; one that was begun under the older name of its project is found there."""
    directory = working_dir.absolute()
    derived = _session_file(project_slug(directory), session_id)
    if derived.exists():
        return derived
    older = _session_file(f"{directory.name}-{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}", session_id)
    return older if older.exists() else derived


def _session_file(slug: str, session_id: str) -> Path:
    return Path.home() / ".amplifier" / "projects" / slug / "sessions" / session_id / _FILE
