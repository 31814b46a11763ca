"""Sessions that other applications of the ecosystem keep below their `projects`; they are only read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .session_directory import (
    METADATA,
    TRANSCRIPT,
    SessionSummary,
    is_real_user_message,
    is_session_id,
    read_objects,
    warn_of,
)
from .session_query import SessionQuery, matches, page_of


class Related(Protocol):
    """What says where a session has its place in a tree, and when it was used."""

    @property
    def session_id(self) -> str: ...
    @property
    def parent_session_id(self) -> str | None: ...
    @property
    def forked_from_turn(self) -> int | None: ...
    @property
    def created_at(self) -> str: ...
    @property
    def last_activity_at(self) -> str | None: ...


T = TypeVar("T", bound=Related)


@dataclass(frozen=True)
class ForeignSummary(SessionSummary):
    """The same about a session of another application."""

    forked_from_turn: int | None = None


def foreign_directories(projects: Path, session_id: str | None = None) -> Iterator[Path]:
    """Yield the directories of sessions, or those of one id; there may be thousands that hold none."""
    for project in _folders(str(projects)):
        sessions = f"{project}/sessions"
        for path in _folders(sessions) if session_id is None else [f"{sessions}/{session_id}"]:
            if os.path.exists(f"{path}/{METADATA}"):  # noqa: PTH110 - a path is made of the few that are right
                directory = Path(path)
                if is_session_id(directory.name):
                    yield directory


def newest_of_each(sessions: Iterable[T]) -> dict[str, T]:
    """Return sessions by their ids; of two with one id, the one that was used last."""
    newest: dict[str, T] = {}
    for session in sessions:
        other = newest.get(session.session_id)
        if other is None or last_used(session) > last_used(other):
            newest[session.session_id] = session
    return newest


def last_used(session: Related) -> str:
    return session.last_activity_at or session.created_at


def root_of(session: T, known: Mapping[str, T]) -> str:
    """Return the root of a session's tree; a fork begins a tree of its own, and so does one without a parent."""
    root, seen = session, {session.session_id}
    while root.forked_from_turn is None and (parent := known.get(root.parent_session_id or "")) is not None:
        if parent.session_id in seen:
            break
        seen.add(parent.session_id)
        root = parent
    return root.session_id


def find_foreign(
    projects: Path, query: SessionQuery, *, is_copied: Callable[[str], bool]
) -> tuple[list[ForeignSummary], int]:
    """Return the sessions on a page, with their numbers of turns, and how many there are on the whole list."""
    known = newest_of_each(_read(directory) for directory in foreign_directories(projects))
    rooted = (_rooted(each, root_of(each, known)) for each in known.values())
    found = [each for each in rooted if matches(each, query) and not is_copied(each.session_id)]
    return [_counted(each) for each in page_of(found, query)], len(found)


def _read(directory: Path) -> ForeignSummary:
    found = read_foreign_fields(directory)
    return ForeignSummary(**{name: found[name] for name in _FIELDS if name in found}, directory=directory)


def _rooted(session: ForeignSummary, root_id: str) -> ForeignSummary:
    return session if root_id == session.session_id else replace(session, root_session_id=root_id)


def _counted(session: ForeignSummary) -> ForeignSummary:
    entries = [each for each in read_objects(session.directory / TRANSCRIPT) if isinstance(each.get("role"), str)]
    return replace(session, message_count=len(entries), turn_count=sum(map(is_real_user_message, entries)))


def _folders(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        warn_of(Path(directory), error)
        return []


_FIELDS = tuple(each.name for each in fields(ForeignSummary))

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
