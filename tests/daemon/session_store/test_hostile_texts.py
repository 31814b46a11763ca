"""Ids, filters, search texts and cursors that would be SQL, paths or patterns elsewhere are only texts to a store."""

from __future__ import annotations

from contextlib import suppress

import pytest
from stored_sessions import message, new_session

from amplifier_core.exceptions import AmplifierError
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import Place, SessionQuery, SessionStore

HOSTILE = [
    "' OR '1'='1",
    "x'; DROP TABLE sessions; --",
    "x' UNION SELECT * FROM messages --",
    '" OR ""="',
    "$1",
    "%",
    "_",
    "%s",
    "\\' OR 1=1 --",
    "../hers",
    "hers/../hers",
    "hers\x00",
    "*",
    "hers' OR owner='eve",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_hostile_text_finds_nothing_of_another_owner_and_changes_nothing(
    store: SessionStore, me: Holder, text: str
) -> None:
    await store.add(new_session("hers", owner="ada", name="private", messages=[message("her canary word")]), me)
    await store.add(new_session("mine", owner="eve", messages=[message("nothing of note")]), me)

    with suppress(AmplifierError, ValueError):
        assert await store.search(text, owner=text) == ()
    with suppress(AmplifierError, ValueError):
        assert {hit.record.session_id for hit in await store.search(text, owner="eve")} <= {"mine"}
    with suppress(AmplifierError, ValueError):
        assert list(await store.list(SessionQuery(owner=text))) == []
    with suppress(AmplifierError, ValueError):
        assert list(await store.existing([text])) == []
    with suppress(AmplifierError, ValueError):
        assert await store.read_part("mine", text) is None
    with suppress(AmplifierError, ValueError):
        page = await store.read_message_page("mine", Place(9, text, text))
        assert "canary" not in str(page)
    with pytest.raises((AmplifierError, ValueError)):
        await store.read(text)
    with pytest.raises((AmplifierError, ValueError)):
        await store.read_messages(text)

    assert (await store.read("hers")).owner == "ada"
    assert len(await store.read_messages("hers")) == len(await store.read_messages("mine")) == 1
    assert [hit.record.session_id for hit in await store.search("canary", owner="ada")] == ["hers"]
    assert await store.search("canary", owner="eve") == ()
