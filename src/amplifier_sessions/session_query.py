"""Which sessions a list has, and in which order: the same from the index, from the files and for foreign sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

SORT_FIELDS = ("session_id", "name", "status", "created_at", "ended_at", "last_activity_at", "message_count")

_EXACT = ("status", "profile_name", "bundle", "working_dir", "parent_session_id", "owner")


@dataclass(frozen=True)
class SessionQuery:
    """Which sessions are listed, and in which order; `sort` is a field of the index, with `-` the last first."""

    status: str | None = None
    profile_name: str | None = None
    bundle: str | None = None
    working_dir: str | None = None
    parent_session_id: str | None = None
    root_session_id: str | None = None
    owner: str | None = None
    tag: str | None = None
    since: str | None = None
    text: str | None = None
    roots_only: bool = False
    sort: str = "-last_activity_at"
    limit: int = 50
    offset: int = 0


class Listed(Protocol):
    """What a list asks of a session, beside the fields of the query."""

    @property
    def session_id(self) -> str: ...
    @property
    def root_id(self) -> str: ...
    @property
    def created_at(self) -> str: ...
    @property
    def tags(self) -> Sequence[str]: ...


T = TypeVar("T", bound=Listed)


def sort_order(query: SessionQuery) -> tuple[str, bool]:
    """Return the field by which a list is sorted, and whether the last comes first.

    Raises:
        ValueError: sessions cannot be sorted by that.
    """
    field = query.sort.removeprefix("-")
    if field not in SORT_FIELDS:
        raise ValueError(f"sessions cannot be sorted by {field!r}; use one of {', '.join(SORT_FIELDS)}")
    return field, query.sort.startswith("-")


def sort_value(session: Listed, field: str) -> str | int:
    """Return what a session is sorted by; one without any activity is as old as its creation."""
    value = getattr(session, field)
    if value is None:
        return session.created_at if field == "last_activity_at" else ""
    return value if isinstance(value, int) else str(value)


def page_of(sessions: Iterable[T], query: SessionQuery) -> list[T]:
    """Return the sessions that are on a page, given all that match."""
    field, last_first = sort_order(query)
    ordered = sorted(sessions, key=lambda each: (sort_value(each, field), each.session_id), reverse=last_first)
    return ordered[query.offset : query.offset + query.limit]


def matches(session: Listed, query: SessionQuery) -> bool:
    """True if a session satisfies every condition of a query but that on its text."""
    return (
        all(getattr(query, name) in (None, getattr(session, name)) for name in _EXACT)
        and query.root_session_id in (None, session.root_id)
        and (query.tag is None or query.tag in session.tags)
        and (query.since is None or str(sort_value(session, "last_activity_at")) >= query.since)
        and (not query.roots_only or session.root_id == session.session_id)
    )
