"""Sessions on their way from one store to another, and whether both have the same."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from amplifier_foundation.sources.store import make_directory
from amplifier_system.tasks import run_to_end
from amplifier_system.threads import in_thread
from amplifierd.exceptions import SessionError, SessionHeldError, SessionNotFoundError

from .backup import Backup, fingerprint
from .hold import Hold, Holder
from .protocol import NewSession, SessionStore, StoreSnapshot, TrashedSession
from .session_files import GATE, HOLD
from .whole_session import session_contents

Outcome = Literal["copied", "same", "differs", "missing", "in use", "failed"]

T = TypeVar("T")

_AT_ONCE = 8


@dataclass(frozen=True)
class SessionOutcome:
    """What became of one session, and why."""

    session_id: str
    outcome: Outcome
    why: str = ""
    deleted_at: str | None = None
    """Of one that is in the trash: since when."""

    @property
    def is_good(self) -> bool:
        return self.outcome in ("copied", "same")


class SessionCopies:
    """Copies sessions. One that the target has already is left as it is there, so an interrupted copy can be continued.

    Every copy is read again and compared by its hash. With `move` the original is deleted then.
    """

    def __init__(
        self, source: SessionStore | Backup, target: SessionStore, holder: Holder, *, move: bool = False
    ) -> None:
        self._source, self._target, self._holder, self._move = source, target, holder, move

    async def run(self, session_ids: Sequence[str]) -> AsyncIterator[SessionOutcome]:
        async for outcome in _several(session_ids, self._copy):
            yield outcome

    async def run_trash(self) -> AsyncIterator[SessionOutcome]:
        """Copy what can be brought back, under the moments at which it was deleted; a backup has none."""
        source = self._source
        if isinstance(source, Backup):
            return
        known = {_moment(one) for one in await self._target.trash()}
        outcomes: list[SessionOutcome] = []
        async for outcome in _several(await source.trash(), partial(self._copy_trashed, source, known)):
            outcomes.append(outcome)
            yield outcome
        if self._move:
            await _purge(source, outcomes)

    async def _copy_trashed(
        self, source: SessionStore, known: Collection[tuple[str, str]], trashed: TrashedSession
    ) -> SessionOutcome:
        session_id, deleted_at = _moment(trashed)
        try:
            whole = await source.read_trashed(trashed)
            await self._target.add_trashed(whole, deleted_at)
            is_same = fingerprint(await self._target.read_trashed(trashed)) == fingerprint(whole)
        except SessionError as error:
            return SessionOutcome(session_id, "failed", error.message, deleted_at)
        if not is_same:
            return SessionOutcome(session_id, "differs", "there is already one of that moment", deleted_at)
        await _copy_workspace(whole, source.trashed_workspace(trashed), self._target.trashed_workspace(trashed))
        return SessionOutcome(session_id, "same" if _moment(trashed) in known else "copied", deleted_at=deleted_at)

    async def _copy(self, session_id: str) -> SessionOutcome:
        try:
            async with self._at_rest(session_id) as (whole, hold):
                outcome = await self._put(whole)
                if outcome.is_good:
                    await self._bring_files(whole)
                    if self._move and hold is not None and not isinstance(self._source, Backup):
                        await run_to_end(self._source.delete(hold))
                return outcome
        except SessionHeldError as error:
            return SessionOutcome(session_id, "in use", error.message)
        except SessionNotFoundError as error:
            return SessionOutcome(session_id, "missing", error.message)
        except SessionError as error:
            return SessionOutcome(session_id, "failed", error.message)

    @asynccontextmanager
    async def _at_rest(self, session_id: str) -> AsyncIterator[tuple[NewSession, Hold | None]]:
        """Yield a session that is not changed meanwhile."""
        if isinstance(self._source, Backup):
            yield await self._source.read_whole(session_id), None
            return
        hold = await self._source.acquire(session_id, self._holder)
        try:
            yield await self._source.read_whole(session_id), hold
        finally:
            await run_to_end(self._source.release(hold))

    async def _put(self, whole: NewSession) -> SessionOutcome:
        session_id, wanted = whole.record.session_id, fingerprint(whole)
        if await self._target.existing([session_id]):
            if fingerprint(await self._target.read_whole(session_id)) == wanted:
                return SessionOutcome(session_id, "same")
            return SessionOutcome(session_id, "differs", "there is already one with that id, which is left unchanged")
        await self._target.add(whole, self._holder)
        if fingerprint(await self._target.read_whole(session_id)) != wanted:
            return SessionOutcome(session_id, "failed", "the copy differs from the original")
        return SessionOutcome(session_id, "copied")

    async def _bring_files(self, whole: NewSession) -> None:
        """Copy what modules and checkpoints keep of a session on this machine."""
        if isinstance(self._source, Backup):
            return
        session_id = whole.record.session_id
        await _copy_workspace(whole, self._source.workspace(session_id), self._target.workspace(session_id))


async def compare(
    one: StoreSnapshot, other: StoreSnapshot, session_ids: Sequence[str]
) -> AsyncIterator[SessionOutcome]:
    """Say of sessions whether two stores have the same of them; of one store and itself, whether they can be read."""

    async def look(session_id: str) -> SessionOutcome:
        try:
            wanted = fingerprint(await one.read_whole(session_id))
            is_same = fingerprint(await other.read_whole(session_id)) == wanted
        except SessionNotFoundError as error:
            return SessionOutcome(session_id, "missing", error.message)
        except SessionError as error:
            return SessionOutcome(session_id, "failed", error.message)
        return SessionOutcome(session_id, "same") if is_same else SessionOutcome(session_id, "differs")

    async for outcome in _several(session_ids, look, at_once=1):
        yield outcome


async def compare_trash(one: SessionStore, other: SessionStore) -> AsyncIterator[SessionOutcome]:
    """Say of deleted sessions that can be brought back whether two stores have the same of them."""

    async def look(trashed: TrashedSession) -> SessionOutcome:
        session_id, deleted_at = _moment(trashed)
        try:
            wanted = fingerprint(await one.read_trashed(trashed))
            is_same = fingerprint(await other.read_trashed(trashed)) == wanted
        except SessionNotFoundError as error:
            return SessionOutcome(session_id, "missing", error.message, deleted_at)
        except SessionError as error:
            return SessionOutcome(session_id, "failed", error.message, deleted_at)
        return SessionOutcome(session_id, "same" if is_same else "differs", deleted_at=deleted_at)

    async for outcome in _several(await one.trash(), look, at_once=1):
        yield outcome


def _moment(trashed: TrashedSession) -> tuple[str, str]:
    return trashed.record.session_id, trashed.deleted_at


async def _purge(source: SessionStore, outcomes: Sequence[SessionOutcome]) -> None:
    """Remove from the trash what was copied; what of one id was not copied keeps all of that id."""
    kept = {outcome.session_id for outcome in outcomes if not outcome.is_good}
    for session_id in {outcome.session_id for outcome in outcomes} - kept:
        last = max(outcome.deleted_at or "" for outcome in outcomes if outcome.session_id == session_id)
        await source.purge(session_id, before=f"{last}~")  # what is deleted meanwhile stays


async def _copy_workspace(whole: NewSession, origin: Path, place: Path) -> None:
    own = {*session_contents(whole), GATE, HOLD}
    await in_thread(lambda _: _copy_files(origin, place, own))


async def _several(
    items: Sequence[T], work: Callable[[T], Awaitable[SessionOutcome]], *, at_once: int = _AT_ONCE
) -> AsyncIterator[SessionOutcome]:
    """Do something with a few sessions at a time, and yield what became of them in their order."""
    for first in range(0, len(items), at_once):
        for outcome in await asyncio.gather(*map(work, items[first : first + at_once])):
            yield outcome


def _copy_files(origin: Path, place: Path, own: set[str]) -> None:
    if origin == place or not origin.is_dir():
        return
    for path in origin.iterdir():
        if path.name in own or path.name.startswith("."):
            continue
        make_directory(place)
        if path.is_dir():
            shutil.copytree(path, place / path.name, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(path, place / path.name, follow_symlinks=False)
