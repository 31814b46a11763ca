"""What every store of sessions does: sessions are listed, and found by their words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stored_sessions import message, new_session

from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionQuery, SessionStore

OpenStore = Callable[[], SessionStore]


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


async def test_texts_of_any_length_are_compared(store: SessionStore, me: Holder) -> None:
    long = {"working_dir": f"/{'é' * 4000}", "bundle": "b" * 9000, "owner": "o" * 3000}
    await store.create(new_session("s1", **long, tags=["t" * 9000]), me)
    await store.create(new_session("s2", **{name: f"{text}x" for name, text in long.items()}, tags=["t" * 9001]), me)

    for name, text in {**long, "tag": "t" * 9000}.items():
        assert await ids(store, **{name: text}) == ["s1"], name
        assert await ids(store, **{name: text[:-1]}) == [], name


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
