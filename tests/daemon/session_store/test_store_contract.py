"""What every store of sessions does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifierd.exceptions import (
    HoldLostError,
    InvalidSessionIdError,
    MountPlanMissingError,
    SessionExistsError,
    SessionHeldError,
    SessionNotFoundError,
    SessionStateError,
)
from amplifierd.session_store.hold import Hold, Holder
from amplifierd.session_store.protocol import SessionQuery, SessionStore

sys.path.append(str(Path(__file__).parents[2] / "stand_ins"))
from stored_sessions import event, message, new_session

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


async def test_an_id_is_taken_once(store: SessionStore, me: Holder) -> None:
    await store.create(new_session("s1", name="first"), me)

    with pytest.raises(SessionExistsError, match="s1"):
        await store.create(new_session("s1", name="second"), me)

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


async def test_a_failed_switch_changes_nothing(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", plan={"n": 0}), me)
    with pytest.raises(SessionStateError, match="status"):
        await store.switch_plan(hold, {"n": 1}, {}, status="asleep")
    with pytest.raises(TypeError):
        await store.switch_plan(hold, {"n": object()}, {})

    assert await store.read_plan("s1") == {"n": 0}
    assert (await store.read("s1")).revision == 0


async def test_a_deleted_session_is_gone_and_its_id_is_free(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.delete(hold)

    with pytest.raises(SessionNotFoundError):
        await store.read("s1")
    with pytest.raises(SessionNotFoundError):
        await store.append_messages(hold, [message("x")])
    assert (await store.list(SessionQuery())).total == 0
    assert (await store.create(new_session("s1"), me)).epoch == 1


async def test_a_hold_of_a_deleted_session_does_not_open_its_successor(
    store: SessionStore, open_store: OpenStore, me: Holder, other: Holder
) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.append_messages(hold, [message("x")])
    second = open_store()
    await second.delete(await second.acquire("s1", other, take_over=True))
    await second.create(new_session("s1"), other)

    with pytest.raises(HoldLostError):
        await store.append_messages(hold, [message("y")])
    with pytest.raises(HoldLostError):
        await store.update(hold, name="mine")
    await second.close()
    third = open_store()
    with pytest.raises(HoldLostError):
        await third.append_messages(hold, [message("y")])
    assert await third.read_messages("s1") == []
    await third.close()


async def test_a_live_holder_keeps_its_session(store: SessionStore, me: Holder, other: Holder) -> None:
    await store.create(new_session("s1"), other)

    with pytest.raises(SessionHeldError, match="4711") as refused:
        await store.acquire("s1", me)

    assert refused.value.holder == other
    found = await store.holder_of("s1")
    assert found is not None
    assert found.holder == other


async def test_a_session_whose_process_is_gone_is_taken_over_at_once(store: SessionStore, me: Holder) -> None:
    gone = Holder(pid=me.pid, started=me.started - 1, boot_id=me.boot_id, host=me.host, kind="worker")
    old = await store.create(new_session("s1"), gone)
    assert await store.holder_of("s1") is None

    hold = await store.acquire("s1", me)

    assert hold.epoch == old.epoch + 1
    with pytest.raises(HoldLostError):
        await store.append_messages(old, [message("late")])


async def test_a_holder_of_an_earlier_run_of_the_machine_is_gone(store: SessionStore, me: Holder) -> None:
    await store.create(
        new_session("s1"), Holder(pid=me.pid, started=me.started, boot_id="before", host=me.host, kind="worker")
    )
    assert (await store.acquire("s1", me)).epoch == 2


async def test_every_write_under_a_lost_hold_is_refused(store: SessionStore, me: Holder, other: Holder) -> None:
    lost = await store.create(new_session("s1", plan={"n": 0}), me)
    hold = await store.acquire("s1", other, take_over=True)

    for write in (
        store.append_messages(lost, [message("x")]),
        store.append_messages(lost, [message("x")], lasting=True),
        store.append_events(lost, [event(1)]),
        store.replace_messages(lost, []),
        store.update(lost, name="x"),
        store.switch_plan(lost, {"n": 1}, {}),
        store.put_document(lost, "approvals", {}),
        store.put_parts(lost, {"d" * 64: b"x"}),
        store.delete(lost),
    ):
        with pytest.raises(HoldLostError, match="epoch 1"):
            await write
    await store.release(lost)

    found = await store.holder_of("s1")
    assert found == hold
    assert (await store.read("s1")).revision == 0
    assert (await store.read_messages("s1"), await store.read_events("s1")) == ([], [])
    assert await store.read_plan("s1") == {"n": 0}


async def test_a_released_session_is_free_and_its_epoch_goes_on(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.release(hold)

    assert await store.holder_of("s1") is None
    with pytest.raises(HoldLostError):
        await store.append_messages(hold, [message("x")])
    assert (await store.acquire("s1", me)).epoch == 2
    await store.release(hold)
    assert await store.holder_of("s1") is not None


async def test_of_many_that_want_a_session_one_gets_it(store: SessionStore, open_store: OpenStore, me: Holder) -> None:
    await store.release(await store.create(new_session("s1"), me))
    stores = [open_store() for _ in range(5)]

    answers = await asyncio.gather(*(store.acquire("s1", me) for store in stores), return_exceptions=True)

    refused = [answer for answer in answers if isinstance(answer, SessionHeldError)]
    assert len(refused) == 4
    for store in stores:
        await store.close()


async def test_work_that_was_cancelled_leaves_no_hold_behind(store: SessionStore, me: Holder) -> None:
    await store.release(await store.create(new_session("s1"), me))
    for rounds in range(20):
        creating = asyncio.ensure_future(store.create(new_session("s2"), me))
        acquiring = asyncio.ensure_future(store.acquire("s1", me))
        for _ in range(rounds):
            await asyncio.sleep(0)
        creating.cancel()
        acquiring.cancel()
        done = await asyncio.gather(creating, acquiring, return_exceptions=True)
        if isinstance(done[0], Hold):
            await store.delete(done[0])
        if isinstance(done[1], Hold):
            await store.release(done[1])
        assert await store.holder_of("s1") is None
        assert await ids(store) == ["s1"]


async def test_reading_needs_no_hold(store: SessionStore, open_store: OpenStore, other: Holder) -> None:
    await store.create(new_session("s1", messages=[message("hello")]), other)
    reader = open_store()
    assert len(await reader.read_messages("s1")) == 1
    assert (await reader.list(SessionQuery())).total == 1
    await reader.close()


async def test_more_sessions_are_written_than_files_stay_open(store: SessionStore, me: Holder) -> None:
    holds = [await store.create(new_session(f"s{number}"), me) for number in range(150)]
    for hold in (*holds, *holds):
        await store.append_messages(hold, [message("x")])
    assert all([len(await store.read_messages(hold.session_id)) == 2 for hold in holds])


async def ids(store: SessionStore, **conditions: Any) -> list[str]:
    return [record.session_id for record in (await store.list(SessionQuery(**conditions))).sessions]


async def test_a_list_is_sorted_filtered_and_cut_into_pages(store: SessionStore, me: Holder) -> None:
    for number in range(1, 8):
        await store.create(
            new_session(
                f"s{number}",
                created_at=f"2026-01-0{number}T00:00:00Z",
                last_activity_at=None if number == 7 else f"2026-02-0{8 - number}T00:00:00Z",
                profile_name="c/odd" if number % 2 else "c/even",
                status="completed" if number < 4 else "active",
                tags=["first"] if number == 1 else ["x", "ünï \ud800"],
                owner="ann" if number > 5 else None,
                name=f"name {9 - number}",
                message_count=number % 3,
            ),
            me,
        )

    assert await ids(store) == ["s1", "s2", "s3", "s4", "s5", "s6", "s7"]  # s7 was never active after it was created
    assert await ids(store, sort="created_at") == ["s1", "s2", "s3", "s4", "s5", "s6", "s7"]
    assert await ids(store, sort="-created_at", limit=2, offset=1) == ["s6", "s5"]
    assert await ids(store, sort="name", limit=2) == ["s7", "s6"]
    assert await ids(store, sort="-message_count", limit=2) == ["s5", "s2"]
    assert await ids(store, profile_name="c/even") == ["s2", "s4", "s6"]
    assert await ids(store, profile_name="c/even", status="active") == ["s4", "s6"]
    assert await ids(store, tag="first") == ["s1"]
    assert await ids(store, tag="x", sort="-last_activity_at", limit=2, offset=1) == ["s3", "s4"]
    assert await ids(store, tag="x", owner="ann", roots_only=True, status="active") == ["s6", "s7"]
    assert await ids(store, tag="x", profile_name="c/even", sort="created_at") == ["s2", "s4", "s6"]
    assert (await store.list(SessionQuery(tag="x", since="2026-02-06"))).total == 1
    assert len(await ids(store, tag="ünï \ud800")) == 6
    assert await ids(store, owner="ann") == ["s6", "s7"]
    assert await ids(store, since="2026-02-06") == ["s1", "s2"]
    assert await ids(store, working_dir="/elsewhere") == []
    assert await ids(store, offset=100) == []
    page = await store.list(SessionQuery(status="completed", limit=1))
    assert (len(page.sessions), page.total) == (1, 3)
    with pytest.raises(ValueError, match="sorted by 'owner; --'"):
        await store.list(SessionQuery(sort="owner; --"))


async def test_a_list_follows_every_change_at_once(store: SessionStore, open_store: OpenStore, me: Holder) -> None:
    hold = await store.create(new_session("s1"), me)
    assert await ids(store, status="active") == ["s1"]
    await store.update(hold, status="failed", tags=["t"])
    assert await ids(store, status="active") == []
    assert await ids(store, status="failed", tag="t") == ["s1"]
    await store.update(hold, tags=[])
    assert await ids(store, tag="t") == []

    reader = open_store()
    await store.create(new_session("s2"), me)
    assert sorted(await ids(reader)) == ["s1", "s2"]
    await store.delete(hold)
    assert await ids(reader) == ["s2"]
    await reader.close()


async def test_a_tree_is_listed_from_the_top(store: SessionStore, me: Holder) -> None:
    for session_id, parent in (("a", "root"), ("b", "root"), ("a1", "a"), ("a11", "a1"), ("b1", "b")):
        await store.create(
            new_session(session_id, parent_session_id=parent, root_session_id="root", created_by="agent"), me
        )
    await store.create(new_session("root"), me)
    await store.create(new_session("fork", parent_session_id="a"), me)

    assert await store.descendants("root") == ("a", "b", "a1", "b1", "a11")
    assert await store.descendants("a") == ("a1", "a11")
    assert await store.descendants("fork") == ()
    assert sorted(await ids(store, roots_only=True)) == ["fork", "root"]
    assert sorted(await ids(store, parent_session_id="a")) == ["a1", "fork"]
    assert len(await ids(store, root_session_id="root")) == 6


async def found(store: SessionStore, text: str, **options: Any) -> list[str]:
    return sorted(hit.record.session_id for hit in await store.search(text, **options))


async def test_words_are_found_in_names_and_messages(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", name="Build the rocket", messages=[message("Hello, World_wide!")]), me)
    blocks = [{"type": "text", "text": "Das Café ist zu"}, {"type": "tool_use", "id": "x"}]
    await store.create(new_session("s2", messages=[message("first", 1), message("x", 2, content=blocks)]), me)
    await store.create(new_session("s3", messages=[message("明天的会议"), message("x", content=None)]), me)

    assert await found(store, "ROCKET") == ["s1"]
    assert await found(store, "world hello") == ["s1"]
    assert await found(store, "hello rocket") == []  # not in one message
    assert await found(store, "cafe") == await found(store, "CAFÉ") == ["s2"]
    assert await found(store, "会议") == ["s3"]
    assert await found(store, "caf") == []
    await store.append_messages(hold, [message("a rocket-engine", 2, id="m2")])
    [hit] = await store.search("rocket-engine")
    assert (hit.record.session_id, hit.message_id, hit.turn, hit.snippet) == ("s1", "m2", 2, "a rocket-engine")
    [hit] = await store.search("café")
    assert (hit.message_id, hit.turn, hit.snippet) == ("m2", 2, "Das Café ist zu")
    assert await ids(store, text="rocket") == ["s1"]


async def test_what_is_no_longer_there_is_not_found(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", name="alpha", messages=[message("beta"), message("gamma", 2)]), me)
    assert await found(store, "gamma") == ["s1"]
    await store.replace_messages(hold, [message("beta")])
    await store.update(hold, name="delta")

    assert await found(store, "gamma") == []
    assert await found(store, "alpha") == []
    assert await found(store, "beta") == await found(store, "delta") == ["s1"]
    await store.delete(hold)
    assert await found(store, "beta") == []


async def test_a_search_is_limited_to_an_owner_and_a_number(store: SessionStore, me: Holder) -> None:
    for number in range(6):
        owner = "ann" if number < 2 else "o'Neil \" OR *"
        texts = [message(f"word {line}", line) for line in range(300)]
        await store.create(
            new_session(f"s{number}", owner=owner, messages=texts, last_activity_at=f"2026-01-0{6 - number}"), me
        )

    assert await found(store, "word", owner="ann") == ["s0", "s1"]
    assert len(await found(store, "word", owner="o'Neil \" OR *")) == 4
    assert await found(store, "word", owner="nobody") == []
    hits = await store.search("word", limit=3)
    assert [hit.record.session_id for hit in hits] == ["s0", "s1", "s2"]
    assert {hit.turn for hit in hits} == {0}


@pytest.mark.parametrize(
    "text",
    [
        '"',
        "AND",
        "a OR",
        "NEAR(",
        "*",
        "^x",
        "text:",
        "(",
        "'; DROP TABLE sessions; --",
        "",
        " ",
        "\0",
        "\ud800",
        "-",
        "x" * 5000,
    ],
)
async def test_what_is_searched_for_is_only_ever_text(store: SessionStore, me: Holder, text: str) -> None:
    await store.create(new_session("s1", messages=[message("nothing special")]), me)
    assert await store.search(text) == ()
    assert (await store.list(SessionQuery(text=text))).total == 0
    assert await ids(store) == ["s1"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
