"""A process that is killed at every step of a piece of work: the session is as before it or as after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import message, new_session

from amplifierd.exceptions import SessionNotFoundError
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionQuery

StartPython = Callable[..., Any]

KILLED = r"""
# Runs a piece of work on copies of a home, again and again; the n-th time it is killed at its n-th change of a file.
import shutil

CHANGES = {"os.rename", "os.mkdir", "os.link", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock", "shutil.rmtree"}
prepared, name = home, sys.argv[2]
counting = {"left": None}


def watch(event, args):
    if counting["left"] is None:
        return
    is_write = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
    if event in CHANGES or is_write:
        counting["left"] -= 1
        if counting["left"] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(watch)


async def work():
    me = Holder.of_this_process("child")
    store = open_store()
    if name == "create":
        counting["left"] = last
        await store.create(new_session("s2", plan={"n": 0}, messages=[message("hello")]), me)
        return
    if name == "acquire":
        counting["left"] = last
        await store.acquire("s1", me)
        return
    if name in ("restore", "purge"):
        await store.discard(await store.acquire("s1", me))
        counting["left"] = last
        await (store.restore("s1") if name == "restore" else store.purge("s1"))
        return
    hold = await store.acquire("s1", me)
    counting["left"] = last
    match name:
        case "switch":
            await store.switch_plan(hold, {"n": 1}, {"context_messages": [1]}, profile_name="c/p1")
        case "update":
            await store.update(hold, name="after")
        case "replace":
            await store.replace_messages(hold, [message("after")])
        case "delete":
            await store.delete(hold)
        case "discard":
            await store.discard(hold)


ended, last = None, 0
while ended != 0:
    last += 1
    home = prepared.with_name(f"{name}-{last}")
    shutil.copytree(prepared, home)
    child = os.fork()
    if child == 0:
        asyncio.run(work())
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, signal.SIGKILL) and last < 200, ended
    say(home)
"""


async def killed_at_every_step(
    name: str, tmp_path: Path, me: Holder, start_python: StartPython
) -> list[tuple[Path, FileStore]]:
    """Return stores of the homes in which the work was killed, each one step later, and of one where it was not."""
    prepared = tmp_path / "prepared"
    store = FileStore(Paths.from_environment(prepared, environ={}))
    hold = await store.create(
        new_session(
            "s1", plan={"n": 0}, profile_name="c/p0", documents={"context_messages": [0]}, messages=[message("before")]
        ),
        me,
    )
    await store.release(hold)
    await store.close()
    process = start_python(KILLED, prepared, name)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    homes = [Path(line) for line in output.splitlines()]
    return [(home, FileStore(Paths.from_environment(home, environ={}))) for home in homes]


async def state(store: FileStore) -> Any:
    """Return what can be read of the session."""
    record = await store.read("s1")
    return [
        record.name,
        record.profile_name,
        (await store.read_plan("s1"))["n"],
        (await store.read_document("s1", "context_messages"))[0],
        [entry["content"] for entry in await store.read_messages("s1")],
    ]


BEFORE = [None, "c/p0", 0, 0, ["before"]]


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("switch", [None, "c/p1", 1, 1, ["before"]]),
        ("update", ["after", "c/p0", 0, 0, ["before"]]),
        ("replace", [None, "c/p0", 0, 0, ["after"]]),
        ("acquire", BEFORE),
    ],
)
async def test_a_change_is_made_as_a_whole_or_not_at_all(
    tmp_path: Path, me: Holder, start_python: StartPython, name: str, after: Any
) -> None:
    seen = []
    for home, store in await killed_at_every_step(name, tmp_path, me, start_python):
        found = await state(store)
        assert found in (BEFORE, after), home
        seen.append(found)
        hold = await store.acquire("s1", me)
        assert await state(store) == found, home
        assert [path.name for path in store.workspace("s1").glob("*switch*")] == []
        await store.append_messages(hold, [message("more")])
        await store.update(hold, tags=["more"])
        assert (await store.list(SessionQuery(tag="more"))).total == 1
        await store.close()
    assert len(seen) >= 4
    assert seen == sorted(seen, key=lambda found: found == after)
    assert (seen[0], seen[-1]) == (BEFORE, after)


async def test_a_session_is_created_as_a_whole_or_not_at_all(
    tmp_path: Path, me: Holder, start_python: StartPython
) -> None:
    there = []
    for _, store in await killed_at_every_step("create", tmp_path, me, start_python):
        listed = [record.session_id for record in (await store.list(SessionQuery(sort="session_id"))).sessions]
        there.append("s2" in listed)
        if "s2" in listed:
            assert len(await store.read_messages("s2")) == 1
            await store.append_messages(await store.acquire("s2", me), [message("more")])
        else:
            await store.create(new_session("s2"), me)
        assert await state(store) == BEFORE
        await store.close()
    assert len(there) >= 8
    assert there == sorted(there)


async def test_a_session_is_deleted_as_a_whole_or_not_at_all(
    tmp_path: Path, me: Holder, start_python: StartPython
) -> None:
    there = []
    for home, store in await killed_at_every_step("delete", tmp_path, me, start_python):
        found = await store.list(SessionQuery())
        there.append(found.total == 1)
        if found.total:
            assert await state(store) == BEFORE
            await store.acquire("s1", me)
        else:
            with pytest.raises(SessionNotFoundError):
                await store.acquire("s1", me)
            assert await store.search("before") == ()
        assert not list(home.glob("state/sessions/.trash/*")), "what was left is removed when the store is opened"
        await store.close()
    assert there == sorted(there, reverse=True)
    assert (there[0], there[-1]) == (True, False)


@pytest.mark.parametrize(("name", "begin", "end"), [("discard", "there", "trash"), ("restore", "trash", "there")])
async def test_a_session_is_in_exactly_one_place_on_its_way_to_the_trash_and_back(
    tmp_path: Path, me: Holder, start_python: StartPython, name: str, begin: str, end: str
) -> None:
    places = []
    for home, store in await killed_at_every_step(name, tmp_path, me, start_python):
        listed, trashed = (await store.list(SessionQuery())).total, len(await store.trash())
        assert listed + trashed == 1, home
        places.append("there" if listed else "trash")
        if trashed:
            assert await store.search("before") == ()
            await store.restore("s1")
        assert await state(store) == BEFORE, home
        await store.append_messages(await store.acquire("s1", me), [message("more")])
        await store.close()
    assert (places[0], places[-1]) == (begin, end)
    assert places == sorted(places, key=lambda place: place == end)


async def test_what_is_removed_from_the_trash_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, me: Holder, start_python: StartPython
) -> None:
    there = []
    for home, store in await killed_at_every_step("purge", tmp_path, me, start_python):
        there.append(len(await store.trash()) == 1)
        if there[-1]:
            await store.restore("s1")
            assert await state(store) == BEFORE, home
        assert not list(home.glob("state/sessions/.trash/*")), "what was left is removed when the store is opened"
        await store.close()
    assert there == sorted(there, reverse=True)
    assert (there[0], there[-1]) == (True, False)


APPENDING = """
async def main():
    store = open_store()
    hold = await store.acquire("s1", me)
    number = 0
    while True:
        await store.append_messages(hold, [message("x" * (number * 977 % 50_000), number)], lasting=number % 40 == 0)
        await store.append_events(hold, [event(number)])
        await store.put_parts(hold, {f"{number:064x}": b"p" * 1000})
        if number % 25 == 0:
            await store.update(hold, turn_count=number)
        say(number)
        number += 1

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 70])
async def test_a_killed_process_loses_nothing_that_it_was_told_is_stored(
    tmp_path: Path, me: Holder, start_python: StartPython, after: int
) -> None:
    paths = Paths.from_environment(tmp_path, environ={})
    store = FileStore(paths)
    await store.release(await store.create(new_session("s1"), me))
    process = start_python(APPENDING, tmp_path)
    for _ in range(after):
        process.stdout.readline()

    process.kill()
    acknowledged = after + len(process.stdout.readlines())
    process.wait()

    for path in paths.sessions.rglob("*.json"):
        json.loads(path.read_text())
    hold = await store.acquire("s1", me)
    await store.append_messages(hold, [message("after", -1)])
    turns = [entry["turn"] for entry in await store.read_messages("s1")]
    assert turns == [*range(len(turns) - 1), -1]
    assert acknowledged <= len(turns) - 1 <= acknowledged + 1
    assert len(await store.read_events("s1")) in (acknowledged, acknowledged + 1)
    assert await store.read_part("s1", f"{acknowledged - 1:064x}") == b"p" * 1000
    await store.close()


SAYING = """
async def main():
    store = open_store()
    hold = await store.acquire("s1", me)
    await store.append_messages(hold, [message("unheard")])
    await store.update(hold, status="failed")
    await store.create(new_session("s2", name="unseen"), me)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_the_index_learns_what_a_killed_process_had_not_told_it(
    tmp_path: Path, me: Holder, start_python: StartPython
) -> None:
    store = FileStore(Paths.from_environment(tmp_path, environ={}))
    await store.release(await store.create(new_session("s1"), me))
    assert (await store.list(SessionQuery())).total == 1
    start_python(SAYING, tmp_path).wait()

    for opened in (store, FileStore(Paths.from_environment(tmp_path, environ={}))):
        assert [hit.record.session_id for hit in await opened.search("unheard")] == ["s1"]
        assert [hit.record.session_id for hit in await opened.search("unseen")] == ["s2"]
        assert (await opened.list(SessionQuery(status="failed"))).total == 1
        await opened.close()
