"""A stream that follows a session from member to member: each event once and in order, wherever it comes from."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amplifierd.cluster.destination import Destination
from amplifierd.cluster.session_locations import SessionLocations
from amplifierd.exceptions import MemberError, MemberUntrustedError, TooManySubscribersError
from amplifierd.server.events.published_event import PublishedEvent, daemon_event, stored_event
from amplifierd.server.events.session_streams import FollowingWatch
from amplifierd.store.cursor import Cursor
from amplifierd.store.record import TreePlace

SESSION, OWN = "session_1", "member_a"
KEEPALIVE_S = 30.0


class Tree:
    """A session that members tell of, one after the other."""

    def __init__(self) -> None:
        self.place = TreePlace(1, OWN, None, True)
        self.events: list[PublishedEvent] = []
        self.ends: list[PublishedEvent] = []
        self.locations = SessionLocations(self._find)
        self._changed = asyncio.Event()
        self._cuts = 0
        self.silences = 0  # how often a member will take a request, and say nothing

    async def _find(self, roots: Collection[str]) -> dict[str, TreePlace]:
        return dict.fromkeys(roots, self.place)

    def tell(self, name: str = "tool:pre") -> None:
        line = {"event": name, "seq": len(self.events) + 1, "session_id": SESSION, "data": {}}
        self.events.append(stored_event(line, SESSION))
        self._wake()

    def refuse(self, turn: str) -> None:
        """Let every member tell the end of a turn that is stored nowhere, to whoever comes to it."""
        line = {"event": "execution:done", "session_id": SESSION, "correlation_id": turn, "data": {}}
        told = stored_event(line, SESSION)
        told.cursor = None
        self.ends.append(told)

    def move(self, member_id: str | None) -> None:
        """Let another member hold it, or nobody."""
        self.place = TreePlace(self.place.epoch + 1, member_id, f"http://{member_id}", member_id is not None)
        self.locations.wake()

    def cut(self) -> None:
        """Break the connections to other members."""
        self._cuts += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def told(self, after: Cursor | None, *, overlap: int = 0) -> AsyncIterator[Sequence[PublishedEvent]]:
        """Yield what comes after an event, and some of what came before it again."""
        if self.silences and self.place.member_id != OWN:
            self.silences -= 1
            await asyncio.Event().wait()
        place, cuts = self.place, self._cuts
        position = 0 if after is None else max(0, after.seq - overlap)
        if after is None:
            position = len(self.events)
            yield [daemon_event("stream:connected", {"sequence": position}, root_id=SESSION)]
        elif self.ends:
            yield self.ends
        while True:
            waiting = self._changed.wait()
            if cuts != self._cuts:
                waiting.close()
                raise MemberError("the connection is lost")
            batch, position = self.events[position:], len(self.events)
            if batch and self.place == place:
                waiting.close()
                yield batch
            else:
                await waiting

    def watch(self, *, may_come_back: bool = True) -> FollowingWatch:
        @asynccontextmanager
        async def open_there(to: Destination, after: Cursor | None) -> AsyncIterator[AsyncIterator[Any]]:
            if to.member_id == "joined_anew":
                self.move("member_b")
            if to.member_id in ("impostor", "joined_anew"):
                raise MemberUntrustedError("it does not know the token, or is another member")
            yield self.told(after, overlap=3)

        async def open_here(after: Cursor | None) -> Any:
            if after is not None and not may_come_back:
                raise TooManySubscribersError("the daemon is about to end")
            return _Here(self.told(after))

        return FollowingWatch(self.locations, lambda: OWN, SESSION, SESSION, open_here, open_there)


class _Here:
    is_overflowed = False

    def __init__(self, told: AsyncIterator[Any]) -> None:
        self._told = told

    def batches(self, keepalive_s: float) -> AsyncIterator[Any]:
        return self._told

    def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(4))
async def test_every_event_is_seen_once_wherever_the_session_goes(seed: int) -> None:
    tree, chance, seen = Tree(), random.Random(seed), list[int]()
    watch = tree.watch()
    await watch.begin()

    async def read() -> None:
        async for batch in watch.batches(KEEPALIVE_S):
            seen.extend(event.cursor.seq if event.cursor else event.envelope()["data"]["sequence"] for event in batch)

    looking, reading = asyncio.create_task(tree.locations.run()), asyncio.create_task(read())
    await asyncio.sleep(0)
    for _ in range(12):
        match chance.choice(("move", "move", "cut")):
            case "move":
                tree.move(chance.choice((OWN, "member_b", "member_c", None)))
            case _:
                tree.cut() if tree.place.member_id not in (OWN, None) else None
        for _ in range(chance.randrange(4)):
            tree.tell()
        await asyncio.sleep(chance.choice((0, 0.002, 0.06)))
    tree.tell("session:deleted")
    async with asyncio.timeout(10):
        await reading
    looking.cancel()
    assert seen == [*range(seen[0], len(tree.events) + 1)]  # from where it was connected


async def test_the_end_of_a_turn_that_every_member_tells_is_seen_once() -> None:
    tree = Tree()
    watch = tree.watch()
    await watch.begin()
    looking, seen = asyncio.create_task(tree.locations.run()), list[tuple[str, str]]()

    async def read() -> None:
        async for batch in watch.batches(KEEPALIVE_S):
            seen.extend((event.name, event.envelope()["correlation_id"]) for event in batch)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    for turn, member_id in (("one", "member_b"), ("two", OWN), ("three", "member_b")):
        tree.refuse(turn)
        tree.move(member_id)
        tree.tell()
        await asyncio.sleep(0.1)
    tree.tell("session:deleted")
    async with asyncio.timeout(10):
        await reading
    looking.cancel()

    assert [turn for name, turn in seen if name == "execution:done"] == ["one", "two", "three"]


async def test_someone_who_is_not_a_member_ends_the_stream_with_a_reason() -> None:
    tree = Tree()
    tree.move("impostor")
    watch = tree.watch()
    await watch.begin()

    told = [event.name async for batch in watch.batches(KEEPALIVE_S) for event in batch]

    assert told == ["stream:error"]


async def test_a_member_that_has_joined_anew_is_looked_for_again() -> None:
    tree = Tree()
    tree.move("joined_anew")
    watch = tree.watch()
    await watch.begin()
    batches = watch.batches(KEEPALIVE_S)

    assert [event.name for event in await asyncio.wait_for(anext(batches), 10)] == ["stream:connected"]

    tree.tell("session:deleted")
    assert [event.name async for batch in batches for event in batch] == ["session:deleted"]


async def test_a_member_that_takes_the_request_and_says_nothing_is_asked_anew() -> None:
    tree = Tree()
    tree.silences = 1
    tree.move("member_b")
    watch = tree.watch()
    await watch.begin()
    batches = watch.batches(0.01)

    shown = [[event.name for event in await asyncio.wait_for(anext(batches), 10)] for _ in range(4)]

    assert shown == [[], [], [], ["stream:connected"]]  # those who watch are kept alive meanwhile


async def test_a_daemon_that_takes_no_more_watchers_ends_a_stream_that_comes_back_to_it() -> None:
    tree = Tree()
    watch = tree.watch(may_come_back=False)
    await watch.begin()
    names = [event.name async for batch in _moving(tree, watch) for event in batch]
    assert names == ["stream:connected"]


async def _moving(tree: Tree, watch: FollowingWatch) -> AsyncIterator[Any]:
    """Yield what is shown of a session that goes to another member, and comes back when it has been seen there."""
    looking = asyncio.create_task(tree.locations.run())
    async for batch in watch.batches(KEEPALIVE_S):
        yield batch
        tree.move("member_b")
        await asyncio.sleep(0.2)
        tree.move(None)
    looking.cancel()


async def test_it_ends_with_this_daemon_also_while_another_one_holds_the_session() -> None:
    tree = Tree()
    tree.move("member_b")
    watch = tree.watch()
    await watch.begin()
    batches = watch.batches(KEEPALIVE_S)
    assert [event.name for event in await anext(batches)] == ["stream:connected"]

    coming = asyncio.ensure_future(anext(batches, None))
    await asyncio.sleep(0)
    tree.locations.close()

    assert await asyncio.wait_for(coming, 10) is None
