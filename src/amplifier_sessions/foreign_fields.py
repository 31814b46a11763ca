"""What is known of a session that another application of the ecosystem keeps, whatever its metadata looks like."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .session_directory import METADATA, TRANSCRIPT, is_session_id

ORIGIN = "amplifier"

_LONGEST_NAME = 200
_LARGEST_METADATA = 4 << 20
_MAPPED = frozenset(
    {"session_id", "parent_id", "created", "created_at", "turn_count", "message_count", "bundle", "model", "name"}
    | {"forked_from_turn", "forked_at", "working_dir", "tags"}
)


def read_foreign_fields(directory: Path) -> dict[str, Any]:
    """Return the fields of a session's record; what its metadata gets wrong is left out, and named in `load_warnings`.

    The root of its tree is not known here.
    """
    metadata, problem = _read_metadata(f"{directory}/{METADATA}")
    touched = _moment(_modified(f"{directory}/{TRANSCRIPT}") or _modified(f"{directory}/{METADATA}"))
    created = _timestamp(metadata.get("created")) or _timestamp(metadata.get("created_at")) or touched
    parent = metadata.get("parent_id")
    return {
        "session_id": directory.name,
        "name": _name(metadata.get("name")),
        "bundle": _text(metadata.get("bundle")),
        "model": _text(metadata.get("model")),
        "working_dir": _directory(metadata.get("working_dir")),
        "parent_session_id": parent if isinstance(parent, str) and is_session_id(parent) else None,
        "forked_from_turn": _count(metadata.get("forked_from_turn")),
        "forked_at": _timestamp(metadata.get("forked_at")),
        "origin": ORIGIN,
        "created_at": created,
        "started_at": created,
        "last_activity_at": max(created, touched),
        "turn_count": _count(metadata.get("turn_count")) or 0,
        "message_count": _count(metadata.get("message_count")) or 0,
        "tags": [tag for tag in _listed(metadata.get("tags")) if isinstance(tag, str)],
        "metadata": {
            **{str(key): value for key, value in metadata.items() if key not in _MAPPED},
            "project": directory.parents[1].name,
            "path": str(directory),
        },
        "load_warnings": [{"code": "metadata-unreadable", "message": problem}] if problem else [],
    }


def _read_metadata(path: str) -> tuple[Mapping[str, Any], str]:
    """Return what the file says, and what is wrong with it; a list reads hundreds of them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_METADATA:
                return {}, f"{path} is not a file, or too large"
            content = os.read(descriptor, _LARGEST_METADATA)
        finally:
            os.close(descriptor)
        metadata = json.loads(content.decode("utf-8-sig", errors="replace"))
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path} cannot be read: {type(error).__name__}"
    return (metadata, "") if isinstance(metadata, dict) else ({}, f"{path} does not hold a JSON object")


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 - of hundreds of files
    except OSError:
        return 0.0


def _moment(seconds: float) -> str:
    return _stored(datetime.fromtimestamp(max(0.0, seconds), UTC))


def _timestamp(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        return _stored(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def _stored(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _name(value: Any) -> str | None:
    text = _text(value)
    return text[:_LONGEST_NAME] if text else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _directory(value: Any) -> str:
    """Return an absolute directory; the name of a project does not tell which one it was."""
    return value if isinstance(value, str) and value.startswith("/") and "\0" not in value else str(Path.home())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
