"""Events on their way into the files and to those who watch."""

from __future__ import annotations

import asyncio
import base64
import fcntl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import new_session

from amplifier_kit.types import STAMP
from amplifierd.exceptions import HoldLostError
from amplifierd.paths import Paths
from amplifierd.sessions.events.journal import Journal
from amplifierd.sessions.events.tree_events import Event, Subscription, TreeEvents
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

SECRET = "a-secret-that-nobody-may-see"


class Tree:
    """Two sessions of one tree, each with its journal."""

    def __init__(self, store: FileStore) -> None:
        self.store, self.me = store, Holder.of_this_process("test")
        self.events = TreeEvents("parent")
        self.watching = self.events.subscribe()

    async def journal(self, session_id: str) -> Journal:
        new = new_session(session_id)
        hold = await self.store.create(new, self.me)
        return Journal(self.store, hold, new.record, self.events, SecretValues([SECRET]))

    async def stored(self, session_id: str) -> list[tuple[int, str]]:
        return [(line["seq"], line["event"]) for line in await self.store.read_events(session_id)]

    async def told(self) -> list[Event]:
        return await told_to(self.watching)


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    store = FileStore(Paths.from_environment(tmp_path / "home", environ={}))
    yield Tree(store)
    await store.close()


async def told_to(watching: Subscription) -> list[Event]:
    watching.close()
    return [event async for event in watching]


def names(events: list[Event]) -> list[tuple[int | None, str]]:
    return [(event["sequence"], event["event"]) for event in events]


async def test_a_tree_tells_its_events_in_the_order_of_their_numbers_and_stores_each_at_its_session(tree: Tree) -> None:
    parent, child = await tree.journal("parent"), await tree.journal("child")

    parent.hear("tool:pre", {})
    child.hear("provider:request", {})
    await child.write("request:stored", {})
    parent.hear("tool:post", {})
    await tree.events.settle()

    assert await tree.stored("parent") == [(1, "tool:pre"), (4, "tool:post")]
    assert await tree.stored("child") == [(2, "provider:request"), (3, "request:stored")]
    assert [number for number, _ in names(await tree.told())] == [1, 2, 3, 4]


async def test_what_is_told_is_in_the_file_already_and_a_piece_of_an_answer_never(tree: Tree) -> None:
    journal = await tree.journal("parent")
    file = tree.store.workspace("parent") / "events.jsonl"
    found: list[tuple[str, bool]] = []

    def look(event: Event) -> bool:
        found.append((event["event"], f'"seq":{event["sequence"]},' in file.read_text()))
        return False

    tree.events.subscribe(look)
    journal.hear_delta("content_block:delta", {"delta": "He"})
    journal.hear("content_block:end", {})
    journal.hear_delta("content_block:delta", {"delta": "llo"})
    await journal.write("execution:done", {}, lasting=True)

    assert found == [
        ("content_block:delta", False),
        ("content_block:end", True),
        ("content_block:delta", False),
        ("execution:done", True),
    ]


async def test_what_is_heard_needs_nobody_to_wait_for_it(tree: Tree) -> None:
    journal = await tree.journal("parent")
    journal.hear("tool:pre", {"tool_name": "bash"})

    async with asyncio.timeout(30):
        async for event in tree.watching:
            assert (event["event"], event["data"]) == ("tool:pre", {"tool_name": "bash"})
            break

    assert await tree.stored("parent") == [(1, "tool:pre")]


async def test_events_keep_their_order_while_somebody_else_is_at_the_gate(tree: Tree) -> None:
    parent, child = await tree.journal("parent"), await tree.journal("child")
    with (tree.store.workspace("parent") / "gate").open("rb+") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        writing = asyncio.create_task(parent.write("tool:intent", {}, lasting=True))
        await asyncio.sleep(0)
        child.hear_delta("content_block:delta", {"delta": "x"})
        child.hear("content_block:end", {})
        assert not writing.done()

    await writing
    await tree.events.settle()

    assert names(await tree.told()) == [
        (1, "tool:intent"),
        (None, "content_block:delta"),
        (2, "content_block:end"),
    ]
    assert await tree.stored("child") == [(2, "content_block:end")]


async def test_a_session_that_was_taken_over_tells_and_stores_nothing_more(tree: Tree) -> None:
    journal, losses = await tree.journal("parent"), list[str]()
    journal.on_lost = lambda: losses.append("lost")
    await tree.store.acquire("parent", tree.me, take_over=True)

    journal.hear("tool:pre", {})
    await tree.events.settle()
    with pytest.raises(HoldLostError):
        await journal.write("tool:intent", {}, lasting=True)

    assert losses == ["lost"]
    assert (await tree.told(), await tree.stored("parent")) == ([], [])


@pytest.mark.parametrize(
    "data",
    [
        {"text": SECRET},
        {"list": [{"deep": f"<{SECRET}>"}]},
        {"odd": {1: (SECRET,)}},
        {STAMP: {"applied": True, "skipped": [SECRET]}},
        {"input": {STAMP: {"text": SECRET}}},
        {"input": [{"odd": object(), STAMP: {"api_key": SECRET}}]},
    ],
)
async def test_one_secret_among_many_events_is_masked_and_the_others_stay(tree: Tree, data: dict[str, Any]) -> None:
    journal = await tree.journal("parent")
    journal.hear("tool:pre", {"text": "before"})
    journal.hear("tool:post", data)
    journal.hear_delta("content_block:delta", data)
    await tree.events.settle()

    stored = (tree.store.workspace("parent") / "events.jsonl").read_text()
    first, second, piece = await tree.told()
    assert first["data"] == {"text": "before"}
    assert SECRET not in f"{second}{piece}{stored}"
    assert "[REDACTED" in str(second)
    assert "[REDACTED" in str(piece)


async def test_what_an_emitter_changes_later_was_told_and_stored_as_it_was(tree: Tree) -> None:
    journal = await tree.journal("parent")
    inner = {"count": 1}
    journal.hear("tool:pre", {"inner": inner})
    inner["count"] = 2
    await tree.events.settle()

    (told,) = await tree.told()
    (stored,) = await tree.store.read_events("parent")
    assert (told["data"], stored["data"]) == ({"inner": {"count": 1}}, {"inner": {"count": 1}})


def test_a_text_that_was_harmless_once_is_a_secret_as_soon_as_it_is_known_to_be_one() -> None:
    secrets = SecretValues()
    assert not secrets.may_be_in([SECRET], ["text"])

    secrets.add(SECRET)

    assert secrets.may_be_in([SECRET], ["text"])


@pytest.mark.parametrize("before", [b"", b"x", b"user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_secret_is_masked_in_base64_wherever_it_stands(before: bytes, encode: Callable[[bytes], bytes]) -> None:
    secret = "k\u00fcche~~~???-und-garten-7"
    secrets = SecretValues([secret])
    text = f"sent: {encode(before + secret.encode() + b' and more').decode()}"

    masked = secrets.masked({"text": text})["text"]

    assert "[REDACTED]" in masked
    assert len(masked) < len("sent: ") + len("[REDACTED]") + len(before) * 2 + 20
    assert secrets.are_in([text], [])


def test_a_known_secret_is_masked_with_unseen_characters_in_it() -> None:
    secrets = SecretValues(["kitchen-and-garden"])

    assert secrets.masked("my kit\u200bchen-and-\u2060garden!") == "my [REDACTED]!"
