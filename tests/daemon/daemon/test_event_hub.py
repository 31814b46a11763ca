"""Events on their way to clients: ring, disk and queue together tell each of them once and in order."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amplifierd import open_home
from amplifierd.exceptions import TooManySubscribersError
from amplifierd.paths import Paths
from amplifierd.server.auth.callers import Caller
from amplifierd.server.auth.session_access import EventView, SessionAccess
from amplifierd.server.events.event_hub import EventHub
from amplifierd.server.events.event_watch import EventWatch, GlobalWatch, SessionWatch
from amplifierd.server.events.published_event import EventFilter, PublishedEvent
from amplifierd.server.events.stored_tree import StoredTree
from amplifierd.server.events.subscriber import StreamLimits, Subscriber
from amplifierd.store.cursor import Cursor
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import NewSession, SessionStore
from amplifierd.store.record import SessionRecord, now

ALL = EventFilter()
ADMIN = Caller("admin", "admin", "admin")
ROOT, CHILD, GRANDCHILD = "root", "root-child", "root-child-below"
PARENTS = {ROOT: None, CHILD: ROOT, GRANDCHILD: CHILD}
SMALL = StreamLimits(queue_events=8, ring_events=5)


class Worker:
    """Numbers the events of a tree, stores what is not a piece of a block, and tells the hub of it."""

    def __init__(self, hub: EventHub, store: SessionStore, holds: dict[str, Hold]) -> None:
        self._hub, self._store, self.holds = hub, store, holds
        self.untold: list[PublishedEvent] = []
        self.cursor = Cursor(1, 0)
        self.stored: list[int] = []

    async def emit(
        self, name: str = "tool:pre", session_id: str = ROOT, data: Any = None, *, tell: bool = True
    ) -> Cursor:
        is_delta = name.endswith(":delta")
        cursor = self.cursor = self.cursor.next_piece() if is_delta else self.cursor.next_event()
        ids = {"session_id": session_id, "parent_id": PARENTS[session_id], "correlation_id": "prompt_root_1"}
        if not is_delta:
            numbered = {"seq": cursor.seq, "epoch": cursor.epoch}
            line = {**numbered, "ts": now(), "lvl": "INFO", "event": name, **ids, "data": data}
            await self._store.append_events(self.holds[session_id], [line])
            self.stored.append(cursor.seq)
        placed = {"sequence": cursor.sequence, "cursor": str(cursor), **ids, "root_session_id": ROOT}
        told = PublishedEvent(
            name,
            json.dumps({"event": name, **placed, "timestamp": now(), "data": data}).encode(),
            session_id=session_id,
            root_id=ROOT,
            cursor=cursor,
            is_delta=is_delta,
        )
        self.untold.append(told)
        if tell:
            self.tell()
        return cursor

    def tell(self) -> None:
        """Let everything arrive that is on its way."""
        for event in self.untold:
            self._hub.publish(event)
        self.untold.clear()

    async def die(self) -> None:
        """Lose what is on its way; whoever takes over goes on after what is stored, and tells it."""
        self.untold.clear()
        self.cursor = self.cursor.resumed(self.cursor.epoch + 1)
        await self.emit("execution:done")


class Client:
    """Reads the stream of a session, loses its connection and comes back with the last id that it saw."""

    def __init__(self, hub: EventHub, store: SessionStore, session_id: str = ROOT, *, names: EventFilter = ALL) -> None:
        self._hub, self._store, self._session_id, self._names = hub, store, session_id, names
        self._watch: EventWatch | None = None
        self._batches: AsyncIterator[Any] | None = None
        self.last_id = "0"
        self.seen: list[int] = []
        self.names: list[str] = []

    async def read(self) -> bool:
        """Read one batch; False when there was none."""
        if self._watch is None or self._batches is None:
            stored = StoredTree(self._store, self._session_id, ROOT, self._names)
            self._watch = SessionWatch(self._hub, stored, self._session_id, ROOT, self._names, after=self.last_id)
            self._batches = self._watch.batches(0)
        batch = await anext(self._batches, None)
        if batch is None:
            self.lose_connection()
            return True
        for event in batch:
            self.names.append(event.name)
            if event.cursor is not None:
                self.last_id = str(event.cursor)
                if not event.is_delta:
                    self.seen.append(event.cursor.seq)
        return bool(batch)

    async def read_all(self) -> None:
        await self.read()
        while await self.read():
            pass

    def lose_connection(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = self._batches = None


@asynccontextmanager
async def a_tree(directory: Path, limits: StreamLimits) -> AsyncIterator[tuple[EventHub, SessionStore, Worker]]:
    store = FileStore(Paths.from_environment(directory, environ={}))
    holds = {}
    for session_id, parent in PARENTS.items():
        record = SessionRecord(
            session_id=session_id,
            parent_session_id=parent,
            root_session_id=ROOT if parent else None,
            working_dir="/srv/project",
            created_at=now(),
        )
        holds[session_id] = await store.create(NewSession(record, {}), Holder.of_this_process("test"))
    hub = EventHub("boot", limits)
    try:
        yield hub, store, Worker(hub, store, holds)
    finally:
        await store.close()


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[tuple[EventHub, SessionStore, Worker]]:
    async with a_tree(tmp_path, SMALL) as made:
        yield made


Tree = tuple[EventHub, SessionStore, Worker]

STEPS = st.sampled_from(["event", "child", "delta", "untold", "tell", "read", "read", "reconnect", "crash"])


@settings(max_examples=40, deadline=None)
@example(["read", "untold", "crash"])
@given(st.lists(STEPS, max_size=40))
def test_ring_and_disk_and_queue_tell_every_event_once_and_in_order(steps: list[str]) -> None:
    async def follow() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with a_tree(Path(directory), SMALL) as (hub, store, worker):
                client = Client(hub, store)
                for step in steps:
                    match step:
                        case "event" | "untold":
                            await worker.emit(tell=step == "event")
                        case "child":
                            await worker.emit("tool:post", CHILD)
                        case "delta":
                            await worker.emit("content_block:delta", data={"delta": "x"})
                        case "tell":
                            worker.tell()
                        case "read":
                            await client.read()
                        case "reconnect":
                            client.lose_connection()
                        case "crash":
                            await worker.die()
                worker.tell()
                await client.read_all()
                assert client.seen == worker.stored

    asyncio.run(follow())


async def test_events_that_happen_while_the_disk_is_read_come_once(tree: Tree) -> None:
    hub, store, worker = tree
    for _ in range(20):
        await worker.emit()
    client = Client(hub, store)

    reading = asyncio.create_task(client.read())
    for _ in range(4):
        await worker.emit(session_id=CHILD)
    await reading
    await client.read_all()

    assert client.seen == [*range(1, 25)]


async def test_a_queue_that_is_full_joins_the_pieces_of_one_block(tree: Tree) -> None:
    hub, _, worker = tree
    subscriber = hub.watch(ROOT, ROOT, ALL)
    await worker.emit("content_block:start")
    for letter in "abcdefgh":
        await worker.emit("content_block:delta", data={"block_index": 0, "delta": letter})

    joined = [item for item in subscriber.take() if isinstance(item, PublishedEvent)]

    assert [event.name for event in joined] == ["content_block:start", "content_block:delta"]
    assert [event.cursor for event in joined] == [Cursor(1, 1), Cursor(1, 1, 8)]
    assert joined[1].envelope()["data"] == {"block_index": 0, "delta": "abcdefgh"}
    assert subscriber.dropped == 0


async def test_pieces_of_different_blocks_are_never_joined_but_dropped(tree: Tree) -> None:
    hub, _, worker = tree
    subscriber = hub.watch(ROOT, ROOT, ALL)
    for index in range(8):
        await worker.emit("content_block:delta", data={"block_index": index, "delta": "x"})
    await worker.emit("tool:pre")

    assert [item.name for item in subscriber.take() if isinstance(item, PublishedEvent)] == ["tool:pre"]
    assert (subscriber.dropped, subscriber.is_closed) == (8, False)


async def test_who_reads_too_slowly_is_told_and_goes_on_where_it_was(tree: Tree) -> None:
    hub, store, worker = tree
    client = Client(hub, store)
    await client.read()
    for _ in range(12):
        await worker.emit()

    await client.read()
    assert client.names == ["stream:overflow"]
    await client.read_all()

    assert client.seen == worker.stored


async def test_a_large_event_fits_and_many_do_not(tmp_path: Path) -> None:
    async with a_tree(tmp_path, replace(SMALL, queue_bytes=1000)) as (hub, _, worker):
        subscriber = hub.watch(ROOT, ROOT, ALL)
        await worker.emit(data="x" * 5000)
        assert not subscriber.is_closed
        await worker.emit(data="x" * 5000)
        assert subscriber.is_overflowed


async def test_a_session_is_watched_with_what_lies_below_it_and_nothing_else(tree: Tree) -> None:
    hub, store, worker = tree
    of_child, own_only = Client(hub, store, CHILD), hub.watch(CHILD, ROOT, ALL, children=False)
    await of_child.read()
    for session_id in (ROOT, CHILD, GRANDCHILD, ROOT, CHILD):
        await worker.emit(session_id=session_id)
    await of_child.read_all()

    assert of_child.seen == [2, 3, 5]
    assert [item.cursor for item in own_only.take() if isinstance(item, PublishedEvent)] == [(1, 2, 0), (1, 5, 0)]
    again = Client(hub, store, CHILD)
    await again.read_all()
    assert again.seen == [2, 3, 5]


async def test_a_client_without_an_id_learns_where_the_stream_is(tree: Tree) -> None:
    hub, store, worker = tree
    for _ in range(9):
        await worker.emit()
    stored = StoredTree(store, ROOT, ROOT, ALL)
    facts = {"activity": "idle", "pending_approvals": []}

    watch = SessionWatch(hub, stored, ROOT, ROOT, ALL, replay=7, facts=lambda: facts)
    connected, *recent = await anext(watch.batches(0))

    assert connected.name == "stream:connected"
    assert connected.envelope()["data"] == {"session_id": ROOT, "sequence": 9, **facts}
    assert watch.frame(connected).startswith(b"id: 1-9.0\n")
    assert [event.cursor.seq for event in recent if event.cursor] == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("requested", ["99", "1-99.0", "garbage", "-1", ""])
async def test_an_unknown_id_is_answered_with_a_gap(tree: Tree, requested: str) -> None:
    hub, store, worker = tree
    await worker.emit()
    watch = SessionWatch(hub, StoredTree(store, ROOT, ROOT, ALL), ROOT, ROOT, ALL, after=requested)
    batches = watch.batches(0)

    (gap,) = await anext(batches)
    assert gap.name == "stream:gap"
    assert gap.envelope()["data"]["resumed_at"] == 1
    assert watch.frame(gap).startswith(b"id: 1-1.0\n")
    await worker.emit()
    assert [event.cursor for event in await anext(batches)] == [(1, 2, 0)]


async def test_pieces_that_ended_with_the_daemon_that_told_them_leave_no_gap(tree: Tree) -> None:
    _, store, worker = tree
    await worker.emit("user_message:saved")
    seen = str(await worker.emit("content_block:delta"))
    other = EventHub("another daemon")
    watch = SessionWatch(other, StoredTree(store, ROOT, ROOT, ALL), ROOT, ROOT, ALL, after=seen)

    assert [*await anext(watch.batches(0))] == []

    await worker.die()
    again = SessionWatch(other, StoredTree(store, ROOT, ROOT, ALL), ROOT, ROOT, ALL, after=seen)
    assert [event.name for event in await anext(again.batches(0))] == ["execution:done"]
    wrong = SessionWatch(other, StoredTree(store, ROOT, ROOT, ALL), ROOT, ROOT, ALL, after="99")
    assert [event.name for event in await anext(wrong.batches(0))] == ["stream:gap"]


async def test_a_client_that_saw_pieces_elsewhere_finds_no_gap_where_the_ring_ends_before_them(tree: Tree) -> None:
    hub, store, worker = tree
    for _ in range(3):
        await worker.emit()
    other = EventHub("the member that went on with the tree", SMALL)
    elsewhere = Worker(other, store, worker.holds)
    elsewhere.cursor = worker.cursor.resumed(2)
    client = Client(other, store)
    for _ in range(6):
        await elsewhere.emit("content_block:delta", data={"delta": "x"})
    await client.read_all()
    assert client.last_id == "2-3.6"

    back = Client(hub, store)
    back.last_id = client.last_id
    await back.read()
    await elsewhere.emit("tool:post")
    worker.cursor = elsewhere.cursor.resumed(3)
    await worker.emit("execution:done")
    await back.read_all()

    assert (back.names, back.seen) == (["tool:post", "execution:done"], [4, 5])


async def test_a_ring_that_is_older_than_what_a_client_saw_elsewhere_says_nothing_of_a_gap(tree: Tree) -> None:
    hub, store, worker = tree
    await worker.emit()
    elsewhere = Worker(EventHub("another member"), store, worker.holds)
    elsewhere.cursor = worker.cursor.resumed(2)
    seen = [await elsewhere.emit() for _ in range(4)][2]

    client = Client(hub, store)
    client.last_id = str(seen)
    await client.read()

    assert (client.names, client.seen) == (["tool:pre"], [5])


async def test_events_that_were_shown_and_lost_are_a_gap_although_others_have_their_numbers(tree: Tree) -> None:
    hub, store, worker = tree
    await worker.emit()
    kept = worker.cursor
    seen = Cursor(kept.epoch, kept.seq + 2)  # what was shown last, before the machine lost its power
    worker.cursor = kept.resumed(2)
    for session_id in (ROOT, CHILD, ROOT):
        await worker.emit(session_id=session_id)

    for hub_then in (hub, EventHub("the daemon that was started then")):
        for names in (ALL, EventFilter.read("tool:*")):
            client = Client(hub_then, store, names=names)
            client.last_id = str(seen)
            await client.read()
            assert (client.names, client.last_id) == (["stream:gap"], "2-4.0")
    client = Client(hub, store)
    client.last_id = str(kept)
    await client.read()
    assert client.seen == [2, 3, 4]


async def test_a_piece_of_the_process_before_is_not_told_after_what_followed_it(tree: Tree) -> None:
    hub, _, worker = tree
    await worker.emit()
    subscriber = hub.watch(ROOT, ROOT, ALL)
    await worker.emit("content_block:delta", tell=False)
    (late,) = worker.untold
    await worker.die()
    hub.publish(late)

    assert [item.name for item in subscriber.take() if isinstance(item, PublishedEvent)] == ["execution:done"]


async def test_lines_and_ids_without_an_epoch_are_served_by_their_numbers(tree: Tree) -> None:
    hub, store, worker = tree
    for number in (1, 7, 9):  # of what earlier versions stored; pieces had the numbers between
        line = {"seq": number, "ts": now(), "lvl": "INFO", "event": "tool:pre", "session_id": ROOT, "data": {}}
        await store.append_events(worker.holds[ROOT], [line])
    worker.cursor = (await StoredTree(store, ROOT, ROOT, ALL).last_cursor()).resumed(1)
    client = Client(hub, store)
    client.last_id = "4"
    await client.read()
    assert (client.seen, client.last_id) == ([7, 9], "9")

    await worker.emit("content_block:delta")
    await worker.emit()
    client.lose_connection()
    await client.read_all()
    plain = Client(hub, store)
    plain.last_id = "9"
    await plain.read_all()

    assert (client.names[2:], client.last_id) == (["content_block:delta", "tool:pre"], "1-10.0")
    assert plain.names == ["content_block:delta", "tool:pre"]


async def test_the_global_stream_replays_what_it_remembers_and_names_other_gaps(tree: Tree, tmp_path: Path) -> None:
    hub, _, worker = tree
    for _ in range(7):
        await worker.emit()

    async def opening(after: str | None) -> list[tuple[str, str | None]]:
        watch = GlobalWatch(hub, ALL, EventView(SessionAccess(open_home(tmp_path).sessions), ADMIN), after=after)
        events = await anext(watch.batches(0))
        watch.close()
        return [(event.name, event.envelope()["data"].get("reason") if event.number == 0 else None) for event in events]

    assert await opening("boot-5") == [("tool:pre", None)] * 2
    assert await opening("boot-1") == [("stream:gap", "evicted")]
    assert await opening("boot-8") == [("stream:gap", "unknown")]
    assert await opening("earlier-5") == [("stream:gap", "other-boot")]
    assert await opening(None) == [("stream:connected", None)]


async def test_the_global_stream_shows_only_what_may_be_seen(tree: Tree) -> None:
    hub, _, worker = tree
    stranger = hub.watch_all(ALL, lambda event: event.root_id is None)
    of_child = hub.watch_all(ALL, lambda event: True, sessions=frozenset({CHILD}))
    await worker.emit()
    await worker.emit(session_id=GRANDCHILD)
    hub.tell("settings:changed", {})
    hub.tell("session:deleted", {}, session_id=ROOT)

    assert [item.name for item in stranger.take() if isinstance(item, PublishedEvent)] == ["settings:changed"]
    assert [item.cursor for item in of_child.take() if isinstance(item, PublishedEvent)] == [(1, 2, 0)]


async def test_who_watches_a_tree_is_told_once_of_a_turn_that_another_member_refused(tree: Tree) -> None:
    hub, store, _ = tree
    of_tree, of_all = hub.watch(ROOT, ROOT, ALL), hub.watch_all(ALL, lambda event: True)

    def end(turn: str) -> PublishedEvent:
        envelope = json.dumps({"correlation_id": turn, "data": {}}).encode()
        return PublishedEvent("execution:done", envelope, session_id=ROOT, root_id=ROOT)

    hub.publish(end("refused here"))
    for turn in ("refused here", "refused elsewhere", "refused elsewhere"):
        hub.hear_end(end(turn))

    told = [
        [item.envelope()["correlation_id"] for item in watching.take() if isinstance(item, PublishedEvent)]
        for watching in (of_tree, of_all)
    ]
    assert told == [["refused here", "refused elsewhere"], ["refused here"]]
    later = SessionWatch(hub, StoredTree(store, ROOT, ROOT, ALL), ROOT, ROOT, ALL, after="0")
    again = await anext(later.batches(0))
    assert [event.envelope()["correlation_id"] for event in again] == told[0]


async def test_as_many_watch_as_may(tmp_path: Path) -> None:
    limits = replace(SMALL, subscribers_per_session=2, subscribers=3)
    async with a_tree(tmp_path, limits) as (hub, _, _worker):
        first, _ = hub.watch(ROOT, ROOT, ALL), hub.watch(ROOT, ROOT, ALL)
        with pytest.raises(TooManySubscribersError, match=f"session {ROOT} is watched by too many"):
            hub.watch(ROOT, ROOT, ALL)
        hub.watch_all(ALL, lambda event: True, owner="bob")
        with pytest.raises(TooManySubscribersError, match="too many clients are watching"):
            hub.watch(CHILD, ROOT, ALL, owner="carol")
        hub.leave(first)
        hub.watch(CHILD, ROOT, ALL, owner="carol")
        assert hub.subscribers == 3


async def test_whoever_takes_all_the_places_they_can_leaves_one_for_the_next(tmp_path: Path) -> None:
    async with a_tree(tmp_path, replace(SMALL, subscribers=16)) as (hub, _, _worker):
        held: dict[str, list[Subscriber]] = {}
        for owner in ("alice", "bob", "carol", "dave"):
            held[owner] = [hub.watch(CHILD, ROOT, ALL, owner=owner)]
            with suppress(TooManySubscribersError):
                while True:
                    held[owner].append(hub.watch_all(ALL, lambda event: True, owner=owner))

        assert [len(streams) for streams in held.values()] == [8, 4, 2, 1]
        with pytest.raises(TooManySubscribersError, match="free are for others"):
            hub.watch(CHILD, ROOT, ALL, owner="dave")
        for one in held["bob"]:
            hub.leave(one)
        hub.watch(CHILD, ROOT, ALL, owner="carol")


async def test_what_waits_for_one_that_reads_nothing_is_bounded_and_others_get_everything(tmp_path: Path) -> None:
    limits = replace(SMALL, queue_events=100)
    async with a_tree(tmp_path, limits) as (hub, store, worker):
        asleep = [hub.watch(ROOT, ROOT, ALL), hub.watch_all(ALL, lambda event: True)]
        readers = [Client(hub, store) for _ in range(4)]
        most = 0
        for number in range(300):
            await worker.emit("content_block:delta", data={"block_index": number, "delta": "x" * 50})
            await worker.emit(data="x" * 50)
            most = max(most, *(one.waiting for one in asleep))
            for reader in readers:
                await reader.read()

        assert (most, [one.is_overflowed for one in asleep]) == (100, [True, True])
        assert [one.waiting for one in asleep] == [0, 0]
        assert [reader.seen for reader in readers] == [worker.stored] * 4


async def test_rings_of_many_trees_stay_within_their_room(tmp_path: Path) -> None:
    hub = EventHub("boot", replace(SMALL, all_rings_bytes=4000))
    for tree in range(50):
        for number in range(1, 4):
            name = f"s{tree}"
            hub.publish(PublishedEvent("tool:pre", b"x" * 200, session_id=name, root_id=name, cursor=Cursor(1, number)))

    kept = [ring for tree in range(50) if (ring := hub.ring(f"s{tree}")) is not None and len(ring)]

    assert sum(ring.size for ring in kept) <= 4000
    assert hub.ring("s49") in kept
    forgotten = hub.ring("s0")
    assert forgotten is not None
    assert forgotten.cursor == Cursor(1, 3)


async def test_the_streams_end_when_the_daemon_does(tree: Tree, tmp_path: Path) -> None:
    hub, store, _ = tree
    watch = SessionWatch(hub, StoredTree(store, ROOT, ROOT, ALL), ROOT, ROOT, ALL)
    everything = GlobalWatch(hub, ALL, EventView(SessionAccess(open_home(tmp_path).sessions), ADMIN))
    hub.close()

    assert [event.name for batch in [b async for b in everything.batches(9)] for event in batch] == [
        "stream:connected",
        "daemon:shutdown",
    ]
    assert [event.name for batch in [b async for b in watch.batches(9)] for event in batch] == ["stream:connected"]


def test_filters_and_presets_are_joined_and_control_events_pass() -> None:
    chosen = EventFilter.read("tool:*, *:error", "minimal")

    assert all(map(chosen.passes, ["tool:pre", "provider:error", "execution:done", "approval:pending", "stream:gap"]))
    assert not any(map(chosen.passes, ["content_block:delta", "llm:request"]))
    assert EventFilter.read(None).passes("anything")
    assert not EventFilter.read("tool:*").passes("execution:done")


def test_a_frame_is_one_line_of_data_and_no_name_of_the_browsers() -> None:
    event = PublishedEvent("error\r\nid: 7", b'{"event":"\xc3\xbc"}', cursor=Cursor(2, 3, 1))

    assert event.frame() == b'id: 2-3.1\nevent: error id: 7\ndata: {"event":"\xc3\xbc"}\n\n'
    assert b"event: event:message\n" in PublishedEvent("message", b"{}").frame()


async def test_trees_that_nobody_watches_are_forgotten_when_there_are_too_many() -> None:
    hub = EventHub("boot", replace(SMALL, rings=3))
    watching = hub.watch("tree-1", "tree-1", ALL)

    for number in range(10):
        tree = f"tree-{number}"
        hub.publish(PublishedEvent("tool:pre", b"{}", session_id=tree, root_id=tree, cursor=Cursor(1, 1)))

    assert [number for number in range(10) if hub.ring(f"tree-{number}") is not None] == [1, 8, 9]
    hub.publish(PublishedEvent("tool:post", b"{}", session_id="tree-1", root_id="tree-1", cursor=Cursor(1, 2)))
    assert [item.name for item in watching.take() if isinstance(item, PublishedEvent)] == ["tool:pre", "tool:post"]
