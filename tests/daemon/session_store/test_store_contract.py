"""What every store of sessions does: what was written is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_sessions import event, message, new_session

from amplifier_sessions.event_page import EventPlace, event_batches, merged_events, tree_page
from amplifierd.exceptions import (
    InvalidSessionIdError,
    MountPlanMissingError,
    SessionExistsError,
    SessionNotFoundError,
    SessionStateError,
)
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import Place, SessionStore
from amplifierd.store.whole_session import StoredLines

OpenStore = Callable[[], SessionStore]


async def test_a_session_is_read_as_it_was_created(store: SessionStore, me: Holder) -> None:
    new = new_session(
        "s1",
        name="Übung",
        tags=["a"],
        messages=[message("hello")],
        events=[event(1)],
        documents={"context_messages": [{"hash": "x"}]},
        parts={"d" * 64: b"\xff\x00", "e" * 64: "täxt\n".encode()},
    )

    hold = await store.create(new, me)

    assert (hold.session_id, hold.holder, hold.epoch) == ("s1", me, 1)
    assert await store.read("s1") == new.record
    assert await store.read_plan("s1") == new.plan
    assert await store.read_messages("s1") == list(new.messages)
    assert await store.read_events("s1") == list(new.events)
    assert await store.read_document("s1", "context_messages") == [{"hash": "x"}]
    assert await store.read_document("s1", "approvals") is None
    assert await store.read_part("s1", "d" * 64) == b"\xff\x00"
    assert await store.read_part("s1", "e" * 64) == "täxt\n".encode()
    assert await store.read_part("s1", "f" * 64) is None


async def test_a_page_of_a_conversation_is_the_part_between_two_messages(store: SessionStore, me: Holder) -> None:
    messages = [{"id": name, "content": name} for name in "abcd"]
    await store.create(new_session("s1", messages=messages), me)

    for before, after, limit in product([None, *"abcdx"], [None, *"abcdx"], [2, 9]):
        place = Place(limit, before, after)
        assert await store.read_message_page("s1", place) == place.page(messages), place


EVENT_PLACES = [
    EventPlace(limit, after_seq=after, offset=offset, from_end=from_end, level=level, wants=wants)
    for limit, after, offset in product([0, 2, 50], [0, 1, 7, 8, 99], [0, 3, 50])
    for from_end, level, wants in [
        (False, None, None),
        (True, None, None),
        (False, "ERROR", None),
        (True, None, lambda name: name.startswith("tool:")),
        (False, "INFO", lambda name: name == "tool:post"),
        (False, None, lambda name: False),
    ]
]


async def test_a_page_of_events_is_the_part_of_those_that_fit(store: SessionStore, me: Holder) -> None:
    names = ("tool:pre", "tool:post", "execution:done")
    events = [
        {
            **event(2 * number, text="ä" * number),
            "event": names[number % 3],
            "lvl": "ERROR" if number % 5 == 0 else "INFO",
        }
        for number in range(1, 24)
    ]
    await store.create(new_session("s1", events=events), me)
    await store.create(new_session("empty"), me)

    for place in EVENT_PLACES:
        found, wanted = await store.read_event_page("s1", place), place.page(events)
        assert (found.events, found.total, found.has_more) == (wanted.events, wanted.total, wanted.has_more), place
    assert (await store.read_event_page("empty", EventPlace(5))).total == 0
    with pytest.raises(SessionNotFoundError, match="nowhere"):
        await store.read_event_page("nowhere", EventPlace(5))


async def test_all_events_come_in_bounded_batches(store: SessionStore, me: Holder) -> None:
    events = [event(number, text="x" * 300_000) for number in range(1, 12)]
    hold = await store.create(new_session("s1", events=events), me)

    batches = [batch async for batch in event_batches(store.read_event_page, "s1")]
    await store.append_events(hold, [event(12)])
    rest = [batch async for batch in event_batches(store.read_event_page, "s1", EventPlace(1, after_seq=10))]

    assert [one for batch in batches for one in batch] == events
    assert max(map(len, batches)) <= 4
    assert [one["seq"] for batch in rest for one in batch] == [11, 12]


async def test_events_of_several_sessions_come_in_the_order_of_their_numbers(store: SessionStore, me: Holder) -> None:
    for number, name in enumerate(("a", "b", "c")):
        await store.create(new_session(name, events=[event(seq) for seq in range(number + 1, 30, 3)]), me)

    merged = [one["seq"] async for one in merged_events(store.read_event_page, ("a", "b", "c"))]
    page = await tree_page(store.read_event_page, ("a", "b", "c"), EventPlace(4, offset=5, after_seq=10))

    assert merged == list(range(1, 30))
    assert ([one["seq"] for one in page.events], page.total, page.has_more) == ([16, 17, 18, 19], 19, True)


async def test_an_id_is_taken_once(store: SessionStore, me: Holder) -> None:
    await store.create(new_session("s1", name="first"), me)

    with pytest.raises(SessionExistsError, match="s1"):
        await store.create(new_session("s1", name="second"), me)
    assert set(await store.existing(["s0", "s1", "s2"])) == {"s1"}

    assert (await store.read("s1")).name == "first"


@pytest.mark.parametrize("session_id", ["../s", "", ".new", "a/b", "a" * 201, "s\n"])
async def test_an_invalid_id_is_refused_everywhere(store: SessionStore, me: Holder, session_id: str) -> None:
    with pytest.raises(InvalidSessionIdError):
        await store.read(session_id)
    with pytest.raises(InvalidSessionIdError):
        await store.acquire(session_id, me)
    with pytest.raises(InvalidSessionIdError):
        store.workspace(session_id)


async def test_an_unknown_session_is_not_found(store: SessionStore, me: Holder) -> None:
    for reading in (
        store.read("s1"),
        store.read_plan("s1"),
        store.read_messages("s1"),
        store.read_events("s1"),
        store.read_document("s1", "approvals"),
        store.read_part("s1", "d" * 64),
        store.descendants("s1"),
        store.holder_of("s1"),
        store.acquire("s1", me),
    ):
        with pytest.raises(SessionNotFoundError, match="s1"):
            await reading


async def test_messages_and_events_are_kept_in_order(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)
    for number in range(1, 21):
        await store.append_messages(hold, [message(f"text {number}", number)], lasting=number % 5 == 0)
        await store.append_events(hold, [event(2 * number - 1), event(2 * number)], lasting=number % 7 == 0)

    assert [entry["turn"] for entry in await store.read_messages("s1")] == list(range(1, 21))
    assert [entry["seq"] for entry in await store.read_events("s1")] == list(range(1, 41))
    assert [entry["seq"] for entry in await store.read_events("s1", after_seq=37)] == [38, 39, 40]


async def test_the_last_event_of_a_name_is_found_in_many_sessions_at_once(store: SessionStore, me: Holder) -> None:
    named = {"both": ["begun", "x", "done", "x"], "one": ["done", "begun", *"xy" * 300], "none": ["x"], "empty": []}
    for session_id, names in named.items():
        events = [{**event(number), "event": name} for number, name in enumerate(names, start=1)]
        await store.create(new_session(session_id, events=events), me)

    found = await store.last_events([*named, "unknown"], ("begun", "done"))

    assert {session_id: (one["event"], one["seq"]) for session_id, one in found.items()} == {
        "both": ("done", 3),
        "one": ("begun", 2),
    }


async def test_events_that_are_appended_at_once_are_there_at_once_or_not_at_all(
    store: SessionStore, me: Holder
) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.append_events(hold, [event(1)])
    working = asyncio.create_task(store.update(hold, name="meanwhile"))
    for number in range(2, 50):
        if not store.try_append_events(hold, [event(number)]):
            await store.append_events(hold, [event(number)])
        await asyncio.sleep(0)
    await store.synchronise(hold)
    await working

    assert [entry["seq"] for entry in await store.read_events("s1")] == list(range(1, 50))


async def test_appending_nothing_does_nothing(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.append_messages(hold, [], lasting=True)
    assert await store.read_messages("s1") == []


async def test_a_thousand_concurrent_updates_and_appends_lose_nothing(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)

    async def count(number: int) -> None:
        await store.append_events(hold, [event(number)])
        if number % 4 == 0:
            await store.update(hold, metadata={"last": number})
        await store.append_messages(hold, [message("x", number)])

    await asyncio.gather(*(count(number) for number in range(1000)))

    assert (await store.read("s1")).revision == 250
    assert sorted(entry["seq"] for entry in await store.read_events("s1")) == list(range(1000))
    assert sorted(entry["turn"] for entry in await store.read_messages("s1")) == list(range(1000))


async def test_concurrent_appends_keep_the_order_in_which_they_were_asked_for(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)
    work: list[Any] = []
    for number in range(200):
        work.append(store.append_events(hold, [event(number)]))
        if number % 20 == 0:
            work.append(store.update(hold, turn_count=number))

    await asyncio.gather(*work)

    assert [entry["seq"] for entry in await store.read_events("s1")] == list(range(200))


async def test_closing_writes_what_waits_to_be_written(open_store: OpenStore, me: Holder) -> None:
    store = open_store()
    hold = await store.create(new_session("s1"), me)
    writing = [asyncio.ensure_future(store.append_events(hold, [event(number)])) for number in range(50)]
    await asyncio.sleep(0)

    await store.close()

    await asyncio.gather(*writing)
    again = open_store()
    assert [entry["seq"] for entry in await again.read_events("s1")] == list(range(50))
    await again.close()


async def test_an_update_changes_what_it_names_and_counts(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", name="a", tags=["x"], unknown_to_us={"kept": True}), me)

    updated = await store.update(hold, name=None, status="completed")

    assert await store.read("s1") == updated
    assert (updated.name, updated.status, updated.tags, updated.revision) == (None, "completed", ["x"], 1)
    assert updated.updated_at is not None
    assert (updated.model_extra or {})["unknown_to_us"] == {"kept": True}


async def test_an_invalid_update_changes_nothing(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", name="a"), me)
    with pytest.raises(SessionStateError, match="status"):
        await store.update(hold, name="b", status="asleep")
    assert (await store.read("s1")).name == "a"


async def test_a_transcript_is_replaced_as_a_whole_and_grows_again(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", messages=[message("a", 1), message("b", 2)]), me)
    await store.append_messages(hold, [message("c", 3)])

    await store.replace_messages(hold, [message("a", 1)])
    await store.append_messages(hold, [message("d", 2)])

    assert [entry["content"] for entry in await store.read_messages("s1")] == ["a", "d"]


async def test_documents_are_put_and_replaced(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.put_document(hold, "approvals", {"always": ["ls"]})
    await store.put_document(hold, "approvals", {"always": []})
    assert await store.read_document("s1", "approvals") == {"always": []}


@pytest.mark.parametrize("name", ["metadata", "mount_plan", "hold", "../x", "a/b", "", "A", "x.json"])
async def test_a_document_has_a_plain_name_of_its_own(store: SessionStore, me: Holder, name: str) -> None:
    hold = await store.create(new_session("s1"), me)
    with pytest.raises(ValueError, match="cannot be named"):
        await store.put_document(hold, name, {})


async def test_parts_are_kept_once(store: SessionStore, me: Holder, open_store: OpenStore) -> None:
    hold = await store.create(new_session("s1"), me)
    parts = {f"{number:064x}": f"part {number}".encode() for number in range(500)}
    await store.put_parts(hold, parts)
    await store.put_parts(hold, {**parts, "f" * 64: b"last"})

    reader = open_store()
    assert await reader.read_part("s1", f"{499:064x}") == b"part 499"
    assert await reader.read_part("s1", "f" * 64) == b"last"
    await store.put_parts(hold, {"e" * 64: b"later"})
    assert await reader.read_part("s1", "e" * 64) == b"later"
    await reader.close()


async def test_a_switch_archives_the_plan_and_changes_the_rest_with_it(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", plan={"n": 0}, documents={"context_messages": [0]}), me)

    numbers = [
        await store.switch_plan(hold, {"n": number}, {"context_messages": [number]}, profile_name=f"c/p{number}")
        for number in (1, 2)
    ]

    assert numbers == [1, 2]
    assert [await store.read_plan("s1", number) for number in (1, 2, None)] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert await store.read_document("s1", "context_messages") == [2]
    record = await store.read("s1")
    assert (record.profile_name, record.revision) == ("c/p2", 2)
    with pytest.raises(MountPlanMissingError):
        await store.read_plan("s1", 3)


async def test_a_whole_session_is_read_at_once_and_stored_elsewhere_as_it_is(
    store: SessionStore, open_store: OpenStore, me: Holder
) -> None:
    new = new_session("s1", plan={"n": 0}, messages=[message("a")], events=[event(1)], parts={"d" * 64: b"\xff"})
    hold = await store.create(new, me)
    await store.switch_plan(hold, {"n": 1}, {"context_messages": [1]}, name="x")
    await store.switch_plan(hold, {"n": 2}, {"notes": None})
    await store.append_messages(hold, [message("b", 2)])
    async with store.snapshot() as snapshot:
        whole = await snapshot.read_whole("s1")
        assert await snapshot.session_ids() == ["s1"]

    assert whole == await store.read_whole("s1")
    assert (whole.record, whole.plan) == (await store.read("s1"), {"n": 2})
    assert (whole.archived_plans, whole.parts) == ([{"n": 0}, {"n": 1}], new.parts)
    assert whole.documents == {"context_messages": [1], "notes": None}
    await store.delete(hold)
    other = open_store()
    await other.add(whole, me)
    assert await other.read_whole("s1") == whole
    assert await other.read_plan("s1", 2) == {"n": 1}
    assert await other.switch_plan(await other.acquire("s1", me), {"n": 3}, {}) == 3
    await other.close()
    with pytest.raises(SessionNotFoundError):
        await store.read_whole("s2")


async def test_a_long_session_is_moved_whole_and_again_where_that_was_interrupted(
    store: SessionStore, me: Holder
) -> None:
    talk = [message(f"{number}", number) for number in range(1, 402)]
    happened = [event(number, text=f"\u0000 {number}") for number in range(1, 1002)]
    new = new_session("s1", messages=StoredLines(lambda: talk), events=StoredLines(lambda: happened))
    broken = replace(new, events=StoredLines(lambda: [*happened, {"seq": 1002, "data": object()}]))

    with pytest.raises(ValueError, match="cannot be stored"):
        await store.add(broken, me)
    assert await store.existing(["s1"]) == set()
    await store.add(new, me)
    with pytest.raises(SessionExistsError):
        await store.add(new, me)

    whole = await store.read_whole("s1")
    assert ([*whole.messages], [*whole.events]) == (talk, happened)
    assert [*whole.events] == happened  # it can be gone through again
    assert (await store.read_events("s1", after_seq=999)) == happened[999:]


async def test_a_failed_switch_changes_nothing(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", plan={"n": 0}), me)
    with pytest.raises(SessionStateError, match="status"):
        await store.switch_plan(hold, {"n": 1}, {}, status="asleep")
    with pytest.raises((TypeError, ValueError)):
        await store.switch_plan(hold, {"n": object()}, {})

    assert await store.read_plan("s1") == {"n": 0}
    assert (await store.read("s1")).revision == 0


async def test_more_sessions_are_written_than_files_stay_open(store: SessionStore, me: Holder) -> None:
    holds = [await store.create(new_session(f"s{number}"), me) for number in range(150)]
    for hold in (*holds, *holds):
        await store.append_messages(hold, [message("x")])
    assert all([len(await store.read_messages(hold.session_id)) == 2 for hold in holds])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


# A busy machine takes long for a store and for the data alike, which says nothing about either.
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(batches=st.lists(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=3), max_size=4))
async def test_what_was_written_is_read(open_store: OpenStore, me: Holder, batches: list[list[dict[str, Any]]]) -> None:
    store = open_store()
    hold = await store.create(new_session(messages=batches[0] if batches else []), me)
    for batch in batches[1:]:
        await store.append_messages(hold, batch)
    await store.put_document(hold, "approvals", batches)

    assert await store.read_messages(hold.session_id) == [entry for batch in batches for entry in batch]
    assert await store.read_document(hold.session_id, "approvals") == batches
    await store.delete(hold)
    await store.close()
