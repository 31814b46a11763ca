"""What is known of a stored session, while another process writes to it: one moment, never a part of two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd.paths import Paths
from amplifierd.server.events.event_hub import EventHub
from amplifierd.server.events.event_watch import SessionWatch
from amplifierd.server.events.published_event import EventFilter
from amplifierd.server.events.stored_tree import StoredTree
from amplifierd.sessions.events.tree_history import session_history
from amplifierd.store.cursor import Cursor
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import NewSession, SessionStore
from amplifierd.store.record import SessionRecord, now

ME = Holder.of_this_process("test")
READS = 8
"""More than are made of a session at once."""


class Interleaved:
    """A store in which something happens after the n-th time that it is read."""

    def __init__(self, store: SessionStore, after: int, happens: Callable[[], Awaitable[None]]) -> None:
        self._store, self._left, self._happens = store, after, happens

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def read(*arguments: Any, **options: Any) -> Any:
            found = await method(*arguments, **options)
            self._left -= 1
            if not self._left:
                await self._happens()
            return found

        return read


class BrokenTurn:
    """A session whose process died in its second turn, and the one that tells how that ended."""

    def __init__(self, store: SessionStore, hold: Hold) -> None:
        self.store, self.hold = store, hold

    async def write(self, seq: int, name: str, *, epoch: int = 1) -> None:
        line = {"seq": seq, "epoch": epoch, "ts": now(), "lvl": "INFO", "event": name, "session_id": "s1", "data": {}}
        await self.store.append_events(self.hold, [line])

    async def end(self) -> None:
        await self.write(5, "execution:done", epoch=2)


@pytest.fixture
async def broken(tmp_path: Path) -> AsyncIterator[BrokenTurn]:
    store = FileStore(Paths.from_environment(tmp_path, environ={}))
    record = SessionRecord(session_id="s1", working_dir="/srv/project", created_at=now())
    turn = BrokenTurn(store, await store.create(NewSession(record, {}), ME))
    for seq, name in enumerate(("user_message:saved", "execution:done", "user_message:saved", "tool:pre"), start=1):
        await turn.write(seq, name)
    yield turn
    await store.close()


@pytest.mark.parametrize("counted", [None, 2, 4])
@pytest.mark.parametrize("after", range(1, READS))
async def test_how_far_events_go_and_how_the_turn_stands_are_of_one_moment(
    broken: BrokenTurn, after: int, counted: int | None
) -> None:
    await broken.store.update(broken.hold, usage={}, usage_seq=counted)

    found = await session_history(Interleaved(broken.store, after, broken.end), "s1")  # type: ignore[arg-type]

    assert (found.last, found.is_in_turn) in (((1, 4, 0), True), ((2, 5, 0), False))


@pytest.mark.parametrize("after", range(1, READS))
async def test_who_saw_pieces_finds_no_gap_whenever_the_end_of_their_turn_is_stored(
    broken: BrokenTurn, after: int
) -> None:
    names, store = EventFilter(), Interleaved(broken.store, after, broken.end)
    stored = StoredTree(store, "s1", "s1", names)  # type: ignore[arg-type]

    watch = SessionWatch(EventHub("boot"), stored, "s1", "s1", names, after=str(Cursor(1, 4, 9)))
    opening = [event.name for event in await anext(watch.batches(0))]
    watch.close()

    assert opening in ([], ["execution:done"])
