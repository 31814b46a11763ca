"""What every store of sessions does: one process at a time writes a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from stored_sessions import event, message, new_session

from amplifierd.exceptions import HoldLostError, SessionExistsError, SessionHeldError, SessionNotFoundError
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import SessionQuery, SessionStore

OpenStore = Callable[[], SessionStore]


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


async def test_a_session_can_be_stored_without_holding_it(store: SessionStore, me: Holder, other: Holder) -> None:
    await store.add(new_session("s1", messages=[message("a")], events=[event(1)]), me)
    assert await store.holder_of("s1") is None
    with pytest.raises(SessionExistsError):
        await store.add(new_session("s1"), other)

    hold = await store.acquire("s1", other)

    assert hold.epoch == 1
    await store.append_messages(hold, [message("b")])
    assert [one["content"] for one in await store.read_messages("s1")] == ["a", "b"]


async def test_a_holder_of_an_earlier_run_of_the_machine_is_gone(store: SessionStore, me: Holder) -> None:
    await store.create(
        new_session("s1"), Holder(pid=me.pid, started=me.started, boot_id="before", host=me.host, kind="worker")
    )
    assert (await store.acquire("s1", me)).epoch == 2


async def append_at_once(store: SessionStore, hold: Hold) -> None:
    if not store.try_append_events(hold, [event(1)]):
        await store.append_events(hold, [event(1)])


async def test_every_write_under_a_lost_hold_is_refused(store: SessionStore, me: Holder, other: Holder) -> None:
    lost = await store.create(new_session("s1", plan={"n": 0}), me)
    hold = await store.acquire("s1", other, take_over=True)

    for write in (
        store.append_messages(lost, [message("x")]),
        store.append_messages(lost, [message("x")], lasting=True),
        store.append_events(lost, [event(1)]),
        append_at_once(store, lost),
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
        assert [record.session_id for record in (await store.list(SessionQuery())).sessions] == ["s1"]


async def test_reading_needs_no_hold(store: SessionStore, open_store: OpenStore, other: Holder) -> None:
    await store.create(new_session("s1", messages=[message("hello")]), other)
    reader = open_store()
    assert len(await reader.read_messages("s1")) == 1
    assert (await reader.list(SessionQuery())).total == 1
    await reader.close()
