"""What every store of sessions does with those that were deleted: they can be brought back as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stored_sessions import event, message, new_session

from amplifierd.exceptions import HoldLostError, InvalidSessionIdError, SessionExistsError, SessionNotFoundError
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionQuery, SessionStore

OpenStore = Callable[[], SessionStore]


async def trashed(store: SessionStore) -> list[str]:
    return [one.record.session_id for one in await store.trash()]


async def test_a_discarded_session_is_in_the_trash_and_nowhere_else(store: SessionStore, me: Holder) -> None:
    hold = await store.create(new_session("s1", name="harbour", messages=[message("where is the ship")]), me)

    await store.discard(hold)

    (found,) = await store.trash()
    assert (found.record.session_id, found.record.name) == ("s1", "harbour")
    assert found.deleted_at > found.record.created_at
    with pytest.raises(SessionNotFoundError):
        await store.read("s1")
    with pytest.raises((SessionNotFoundError, HoldLostError)):
        await store.append_messages(hold, [message("late")])
    assert (await store.list(SessionQuery())).total == 0
    assert await store.search("ship") == ()
    assert await store.abandoned() == []


async def test_a_restored_session_is_as_it_was_and_held_by_no_one(
    store: SessionStore, open_store: OpenStore, me: Holder, other: Holder
) -> None:
    new = new_session("s1", plan={"n": 1}, messages=[message("ship")], events=[event(1)], documents={"notes": [1]})
    hold = await store.create(new, other)
    before = await store.read("s1")
    await store.discard(hold)

    elsewhere = open_store()
    await elsewhere.restore("s1")

    assert await trashed(store) == []
    assert await store.read("s1") == before
    assert await store.read_plan("s1") == {"n": 1}
    assert [one["content"] for one in await store.read_messages("s1")] == ["ship"]
    assert (await store.last_cursor("s1"), await store.read_document("s1", "notes")) == ((0, 1, 0), [1])
    assert [hit.record.session_id for hit in await store.search("ship")] == ["s1"]
    assert await store.holder_of("s1") is None
    with pytest.raises(HoldLostError):
        await store.append_messages(hold, [message("late")])
    again = await store.acquire("s1", me)
    await store.append_messages(again, [message("more")])
    assert again.epoch > hold.epoch
    await elsewhere.close()


async def test_an_id_can_be_used_again_and_the_one_deleted_last_comes_back(store: SessionStore, me: Holder) -> None:
    for name in ("first", "second", "third"):
        hold = await store.create(new_session("s1", name=name), me)
        if name != "third":
            await store.discard(hold)
    assert [one.record.name for one in await store.trash()] == ["second", "first"]

    with pytest.raises(SessionExistsError):
        await store.restore("s1")
    await store.delete(hold)
    await store.restore("s1")

    assert (await store.read("s1")).name == "second"
    assert [one.record.name for one in await store.trash()] == ["first"]


async def test_what_is_purged_does_not_come_back(store: SessionStore, me: Holder) -> None:
    for name in ("s1", "s2", "s1"):
        await store.discard(await store.create(new_session(name), me))
    latest = (await store.trash())[0]

    await store.purge("s1", before=latest.deleted_at)
    assert await trashed(store) == ["s1", "s2"]
    await store.purge("s1")

    assert await trashed(store) == ["s2"]
    for wanted in (store.restore, store.purge):
        with pytest.raises(SessionNotFoundError):
            await wanted("s1")
        with pytest.raises(InvalidSessionIdError):
            await wanted("../s2")


async def test_a_store_that_is_opened_again_still_has_the_trash(
    store: SessionStore, open_store: OpenStore, me: Holder
) -> None:
    await store.discard(await store.create(new_session("s1"), me))

    again = open_store()

    assert await trashed(again) == ["s1"]
    await again.close()
