"""Where events stand: written and read back, and in the order in which they were published."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifierd.store.cursor import Cursor

NUMBERS = st.integers(0, 10**18 - 1)
KNOWN = st.builds(Cursor, st.integers(1, 10**18 - 1), NUMBERS, NUMBERS)
PLAIN = st.builds(Cursor, st.just(0), NUMBERS, st.just(0))
STEPS = st.lists(st.sampled_from(["stored", "piece", "crash"]), max_size=40)


@given(KNOWN | PLAIN)
def test_what_is_written_is_read_back(cursor: Cursor) -> None:
    assert Cursor.parse(str(cursor)) == cursor
    assert Cursor.of_event({"cursor": str(cursor), "sequence": cursor.sequence}) == cursor


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", " 1", "1 ", "1-2", "1.2", "0-1.0", "01-1.0", "1-1.1.1", "boot-5", "1-2.٣", "9" * 19, "1-2.0\n"],
)
def test_anything_else_is_no_place(text: str) -> None:
    assert Cursor.parse(text) is None


def test_an_event_of_an_older_version_stands_at_its_number() -> None:
    assert Cursor.of_line({"seq": 7}) == Cursor.of_event({"sequence": 7}) == Cursor.parse("7") == Cursor(0, 7)
    assert Cursor.of_event({"event": "daemon:ready", "sequence": None}) is None


def published(steps: Sequence[str]) -> list[Cursor]:
    """Return where the events of a tree stand whose process is killed now and then; another one goes on from the store.

    Each takes its hold under a new epoch.
    """
    found, epoch, stored = list[Cursor](), 1, Cursor(1, 0)
    last = stored
    for step in steps:
        match step:
            case "stored":
                last = stored = last.next_event()
                found.append(last)
            case "piece":
                last = last.next_piece()
                found.append(last)
            case "crash":
                epoch += 1
                last = stored.resumed(epoch)
    return found


@given(STEPS)
def test_the_order_is_that_of_publication_whoever_published(steps: list[str]) -> None:
    places = published(steps)

    assert places == sorted(set(places))
    for index, seen in enumerate(places):
        assert [seen.covers(place) for place in places] == [other <= index for other in range(len(places))]


@given(STEPS, st.sets(st.integers(0, 40)))
def test_stored_events_without_an_epoch_are_told_apart_by_their_numbers(steps: list[str], plain: set[int]) -> None:
    """Whichever of them an older version stored, a client gets each once."""
    stored = [
        Cursor(0, place.seq) if index in plain else place
        for index, place in enumerate(place for place in published(steps) if not place.piece)
    ]

    for index, seen in enumerate(stored):
        assert [seen.covers(place) for place in stored] == [other <= index for other in range(len(stored))]


@given(st.lists(KNOWN | PLAIN), st.integers(1, 99))
def test_what_follows_comes_after_all_that_is_there(cursors: list[Cursor], epoch: int) -> None:
    after = Cursor.furthest(cursors).resumed(epoch).next_event()

    assert after.epoch >= epoch
    assert not any(after == cursor or after.covers(cursor) is False for cursor in cursors)
    assert not any(cursor.covers(after) for cursor in cursors)


def test_the_furthest_of_many_cursors_is_found_without_keeping_them() -> None:
    tracemalloc.start()
    try:
        assert Cursor.furthest(Cursor(1, seq) for seq in range(20_000)) == Cursor(1, 19_999)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # other threads of the process allocate, too
    finally:
        tracemalloc.stop()
