"""A session's files: the conversation, its metadata, its events."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from amplifier_system.files import write_atomically

TRANSCRIPT_FILENAME = "transcript.jsonl"
METADATA_FILENAME = "metadata.json"
EVENTS_FILENAME = "events.jsonl"


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines; blank and malformed lines are skipped."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            entry = _parsed(line)
            if isinstance(entry, dict):
                yield entry


def write_jsonl(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Replace a file by one compact JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))


def load_transcript(session_dir: Path) -> list[dict[str, Any]]:
    return list(read_jsonl(session_dir / TRANSCRIPT_FILENAME))


def load_transcript_with_lines(session_dir: Path) -> list[dict[str, Any]]:
    """Return the conversation, each entry with the number of its line under `line_num`.

    Raises:
        ValueError: a line is not a JSON object.
    """
    path = session_dir / TRANSCRIPT_FILENAME
    entries = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            entry = _parsed(line)
            if not isinstance(entry, dict):
                raise ValueError(f"{path}: line {number} is not a JSON object")  # noqa: TRY004 - a bad file
            entries.append({**entry, "line_num": number})
    return entries


def write_transcript(session_dir: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    write_jsonl(session_dir / TRANSCRIPT_FILENAME, entries)


def load_metadata(session_dir: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads((session_dir / METADATA_FILENAME).read_text(encoding="utf-8"))
    return metadata


def write_metadata(session_dir: Path, metadata: Mapping[str, Any]) -> None:
    session_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(metadata, indent=2, ensure_ascii=False)
    write_atomically(session_dir / METADATA_FILENAME, f"{text}\n".encode("utf-8", "surrogatepass"))


def backup(path: Path, label: str) -> Path | None:
    """Copy a file to `<name>.bak-<label>-<time>` beside it; `None` when there is no such file."""
    if not path.exists():
        return None
    copy = path.with_name(f"{path.name}.bak-{label}-{datetime.now(UTC):%Y%m%d%H%M%S}")
    shutil.copy2(path, copy)
    return copy


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
