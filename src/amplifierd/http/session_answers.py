"""Sessions as clients see them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from fastapi import Path

from amplifierd.daemon.daemon import Daemon
from amplifierd.session_store.record import Activity, SessionRecord

from .models import Page, problems

LOADING = problems(502, 504)
"""The further answers of an endpoint that loads the modules of a session, which may have to be fetched."""

SessionId = Annotated[str, Path(max_length=200, description="the id of a session")]


class SessionInfo(SessionRecord):
    """A session; `activity` is what it does at this moment, null while its modules are not loaded."""

    activity: Activity | None = None


class SessionPage(Page):
    sessions: list[SessionInfo]


def shown(daemon: Daemon, record: SessionRecord, **more: Any) -> SessionInfo:
    """Return a session as it is answered."""
    state = daemon.live.state(record.session_id)
    return SessionInfo(**record.model_dump(), activity=state.activity if state else None, **more)


async def all_shown(daemon: Daemon, records: Collection[SessionRecord]) -> list[SessionInfo]:
    """Return sessions as they are answered, also those that other members have at work."""
    elsewhere = await daemon.elsewhere.states.of(records) if daemon.elsewhere is not None else {}
    infos = [shown(daemon, record) for record in records]
    return [
        info.model_copy(update={"activity": elsewhere[info.session_id].activity})
        if info.activity is None and info.session_id in elsewhere
        else info
        for info in infos
    ]
