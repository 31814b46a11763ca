"""Sessions that other applications of the ecosystem keep below their `projects`; they are only read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Protocol, TypeVar

from .foreign_fields import read_foreign_fields
from .person_message import is_real_user_message
from .session_directory import METADATA, TRANSCRIPT, is_session_id, read_objects, warn_of
from .session_query import SessionQuery, matches, page_of
from .session_summary import SessionSummary


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
