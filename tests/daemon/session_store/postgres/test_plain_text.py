"""Whatever stands in a text, it is stored and searched as that text, and does nothing else."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from stored_sessions import event, message, new_session

from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.protocol import Place, SessionQuery

NASTY = [
    "'; DROP TABLE sessions; --",
    "x'); DELETE FROM messages; SELECT ('",
    '" OR 1=1 --',
    "$$; DROP SCHEMA public CASCADE; $$",
    "%s %(name)s %% {} {0} :name ?",
    "\\'; SELECT pg_sleep(9) --",
    "E'\\x00' \0 null \u2028",
    '{"a": [1}, NULL, (2)',
]
TABLES = "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()"


async def test_a_statement_in_any_text_is_only_text(
    open_postgres: Callable[..., PostgresStore], sql: psycopg.Connection
) -> None:
    store = open_postgres()
    await store.list(SessionQuery())
    tables = sql.execute(TABLES).fetchone()
    for nasty in NASTY:
        await check(store, nasty)
    assert sql.execute(TABLES).fetchone() == tables
    assert (await store.list(SessionQuery())).total == len(NASTY)


async def check(store: PostgresStore, nasty: str) -> None:
    session_id, word = f"s{NASTY.index(nasty)}", f"harbour {nasty}"
    me = Holder(
        pid=1, started=1.0, boot_id=nasty.replace("\0", "").replace("\ud800", ""), host="elsewhere", kind="test"
    )
    texts = {
        "name": nasty,
        "profile_name": nasty,
        "bundle": nasty,
        "working_dir": nasty,
        "owner": nasty,
        "model": nasty,
    }
    new = new_session(
        session_id,
        **texts,
        tags=[nasty],
        metadata={nasty: [nasty]},
        plan={nasty: nasty},
        messages=[message(word, id=nasty)],
        events=[{**event(1), "event": nasty, nasty: nasty}],
        documents={"notes": {nasty: nasty}},
        parts={"d" * 64: nasty.encode("utf-8", "surrogatepass")},
    )
    hold = await store.create(new, me)

    assert await store.read(session_id) == new.record
    assert await store.read_plan(session_id) == new.plan
    assert await store.read_messages(session_id) == list(new.messages)
    assert await store.read_events(session_id) == list(new.events)
    assert await store.read_document(session_id, "notes") == {nasty: nasty}
    assert await store.read_parts(session_id) == new.parts
    assert (await store.last_events([session_id], [nasty]))[session_id] == new.events[0]
    assert (await store.read_message_page(session_id, Place(5, before=nasty))).messages == []
    await store.append_messages(hold, [message(nasty, 2)])
    await store.append_events(hold, [{**event(2), "event": nasty}])
    await store.put_document(hold, "notes", [nasty])
    await store.switch_plan(hold, {"n": nasty}, {"notes": nasty}, metadata={nasty: nasty})
    updated = await store.update(hold, name=f"{nasty} again", tags=[nasty, "x"], error_message=nasty)
    assert await store.read(session_id) == updated
    for name in ("profile_name", "bundle", "working_dir", "owner", "tag", "text"):
        assert (await store.list(SessionQuery(**{name: nasty}))).total == 1, name
        assert (await store.list(SessionQuery(**{name: f"{nasty} harbourless"}))).total == 0, name
    (hit,) = await store.search(word, owner=nasty)
    assert hit.message_id == nasty
    assert await store.search(word, owner="nobody") == ()
    await store.shared.put(nasty, nasty, {nasty: nasty})
    assert await store.shared.get(nasty, nasty) == {nasty: nasty}
    assert await store.shared.delete(nasty, nasty)
    await store.discard(hold)
    await store.restore(session_id)
    assert await store.read_plan(session_id, 1) == new.plan
