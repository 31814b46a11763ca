"""The events of a session tree come in the order of their numbers, however long each took to be stored."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifierd.sessions.events.tree_events import Entry, Event, TreeEvents
from amplifierd.sessions.secret_values import plain_data
from amplifierd.store.cursor import Cursor


class Watcher:
    """Takes down the numbers that it is told."""

    def __init__(self, events: TreeEvents) -> None:
        self.seen: list[int] = []
        events.subscribe(self._wants)

    def _wants(self, event: Event) -> bool:
        self.seen.append(event["sequence"])
        return False


def test_an_event_that_was_stored_first_waits_for_the_earlier_one() -> None:
    events = TreeEvents("root")
    watcher = Watcher(events)
    slow, fast = events.next_sequence(), events.next_sequence()

    events.publish({"sequence": fast})
    assert watcher.seen == []
    events.publish({"sequence": slow})

    assert watcher.seen == [slow, fast]


def test_nothing_waits_for_an_event_that_could_not_be_stored() -> None:
    events = TreeEvents("root", Cursor(2, 7))
    watcher = Watcher(events)
    lost, kept = events.next_sequence(), events.next_sequence()

    events.publish({"sequence": kept})
    events.skip(lost)

    assert watcher.seen == [kept] == [9]


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_whatever_is_stored_when_everyone_is_told_in_order(stored: list[int], lost: set[int]) -> None:
    events = TreeEvents("root")
    watcher = Watcher(events)
    for _ in stored:
        events.next_sequence()

    for number in stored:
        if number in lost:
            events.skip(number)
        else:
            events.publish({"sequence": number})

    assert watcher.seen == sorted(set(stored) - lost)


STEPS = st.lists(st.sampled_from(["stored", "piece", "told", "told", "lost"]), max_size=30)


@given(STEPS, st.randoms(use_true_random=False))
def test_pieces_stand_where_they_were_said_whatever_is_stored_when(steps: list[str], chance: random.Random) -> None:
    events, told, waiting = TreeEvents("root", Cursor(3, 7)), list[Event](), list[int]()
    events.subscribe(lambda event: told.append(event) is not None)
    said: list[str | int] = []
    for number, step in enumerate(steps):
        match step:
            case "stored":
                waiting.append(events.next_sequence())
                said.append(waiting[-1])
            case "piece":
                said.append(f"piece {number}")
                events.pass_on({"sequence": None, "name": said[-1]})
            case _ if waiting:
                stored = waiting.pop(chance.randrange(len(waiting)))
                if step == "told":
                    events.publish({"sequence": stored})
                else:
                    said.remove(stored)
                    events.skip(stored)
    for stored in waiting:
        events.publish({"sequence": stored})

    assert [event["sequence"] or event["name"] for event in told] == said
    places = [place for event in told if (place := Cursor.of_event(event)) is not None]
    assert len(places) == len(told)
    assert places == sorted(set(places))
    assert all(place.piece or place.seq == event["sequence"] for place, event in zip(places, told, strict=True))
    shown = [7, *(event["sequence"] for event in told if event["sequence"])]
    assert {place.seq for place in places if place.piece} <= {*shown}  # a piece follows what was shown


class BrokenRecorder:
    """Fails in a way that nobody has thought of."""

    def clean(self, entries: Sequence[Entry]) -> None: ...

    def try_store(self, entries: Sequence[Entry]) -> bool:
        raise ZeroDivisionError

    async def store(self, entries: Sequence[Entry]) -> None: ...


async def test_nothing_waits_for_events_that_broke_on_their_way_into_the_file() -> None:
    events = TreeEvents("root")
    watcher = Watcher(events)
    event = {"event": "tool:pre", "sequence": events.next_sequence()}
    events.add(Entry(BrokenRecorder(), event, plain_data({}), after=0, is_own=True))

    with pytest.raises(ZeroDivisionError):
        await events.settle()
    events.publish({"sequence": events.next_sequence()})

    assert watcher.seen == [2]


class SlowRecorder:
    """Needs the event loop for a while each time, and gets something new to store meanwhile, again and again."""

    def __init__(self, events: TreeEvents) -> None:
        self._events, self.stored = events, 0

    def entry(self) -> Entry:
        event = {"event": "tool:pre", "sequence": self._events.next_sequence()}
        return Entry(self, event, plain_data({}), after=0, is_own=True)

    def clean(self, entries: Sequence[Entry]) -> None: ...

    def try_store(self, entries: Sequence[Entry]) -> bool:
        return False

    async def store(self, entries: Sequence[Entry]) -> None:
        if self.stored < 30:
            self._events.add(self.entry())
        await asyncio.sleep(0)
        self.stored += len(entries)


async def test_telling_something_does_not_wait_for_what_comes_later() -> None:
    events = TreeEvents("root")
    watcher, recorder = Watcher(events), SlowRecorder(events)
    events.add(recorder.entry())
    events.flush()

    await events.tell([recorder.entry()])

    assert watcher.seen[:2] == [1, 2]
    assert recorder.stored < 10
    while not events.is_settled:  # noqa: ASYNC110 - so that nothing is left behind
        await asyncio.sleep(0)


async def test_what_was_not_stored_is_not_told_whatever_kept_it_from_being_stored() -> None:
    class Broken:
        def clean(self, entries: Sequence[Entry]) -> None:
            pass

        def try_store(self, entries: Sequence[Entry]) -> bool:
            return False

        async def store(self, entries: Sequence[Entry]) -> None:
            raise asyncio.CancelledError

    events = TreeEvents("root")
    watcher = Watcher(events)
    event = {"event": "tool:post", "sequence": events.next_sequence()}
    with pytest.raises(asyncio.CancelledError):
        await events.tell([Entry(Broken(), event, plain_data({}), after=0, is_own=False)])
    events.publish({"sequence": events.next_sequence()})

    assert watcher.seen == [2]
