"""`amplifier store`, and what the command shows of sessions that are in a database."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import event, message, new_session

from amplifierd.paths import Paths
from amplifierd.store.backup import fingerprint
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.protocol import SessionStore
from amplifierd.store_address import StoreAddress

ME = Holder.of_this_process("test")
ELSEWHERE = Holder(pid=4711, started=1.0, boot_id="another", host="another-machine", kind="daemon")
Say = Callable[..., Any]
Database = Callable[[], PostgresStore]


def paths_of(home: Path) -> Paths:
    return Paths.from_environment(home, environ={})


async def fill(store: SessionStore, count: int, *, lines: int = 3) -> None:
    """Store sessions with everything that sessions have, and close the store."""
    for number in range(count):
        new = new_session(
            f"s{number:03}",
            name=f"Session {number}",
            messages=[message(f"word {line} \0 ünï", line) for line in range(lines)],
            events=[event(line) for line in range(lines)],
            documents={"approvals": {"always": [number]}},
            parts={"d" * 64: b"\xff\x00"},
            archived_plans=[{"n": number}],
        )
        await store.add(new, ME)
        (store.workspace(f"s{number:03}") / "log.jsonl").write_text("kept by a module\n")
    await store.close()


@pytest.fixture
def database(postgres_address: str, tmp_path: Path) -> Database:
    return lambda: PostgresStore(paths_of(tmp_path / "home"), StoreAddress.parse(postgres_address), program="test")


def test_sessions_are_moved_to_a_database_and_back_and_verified_on_the_way(
    say: Say,
    postgres_address: str,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = paths_of(tmp_path / "home")
    asyncio.run(fill(FileStore(home), 10))
    assert "files" in say("store", "status").out

    copied = say("store", "migrate", postgres_address)

    assert (copied.code, "10 copied" in copied.out, "set store to postgresql://" in copied.out) == (0, True, True), (
        copied.err
    )
    again = json.loads(say("store", "migrate", postgres_address, "--json").out)
    assert again == {"counts": {"same": 10}, "wrong": []}
    assert json.loads(say("store", "verify", postgres_address, "--json").out)["counts"] == {"same": 10}
    assert (home.workspaces / "s003/log.jsonl").read_text() == "kept by a module\n"

    monkeypatch.setenv("AMPLIFIERD_STORE", postgres_address)
    found = json.loads(say("store", "status", "--json").out)
    assert (found["sessions"], found["store"]) == (10, "postgresql")
    assert "Session 7" in say("session", "list").out

    async def change() -> None:
        store = database()
        await store.update(await store.acquire("s003", ELSEWHERE), name="changed")
        await store.acquire("s004", ELSEWHERE)
        other = json.loads((await asyncio.to_thread(say, "store", "verify", "files", "--json")).out)
        assert [(one["session_id"], one["outcome"]) for one in other["wrong"]] == [("s003", "differs")]
        refused = await asyncio.to_thread(say, "store", "migrate", "files", "s004", "--move")
        assert (refused.code, "in use" in refused.out) == (1, True)
        await store.close()

    asyncio.run(change())
    moved = say("store", "migrate", "files", "s001", "s005", "--move")
    assert (moved.code, "2 same" in moved.out) == (0, True)
    assert json.loads(say("store", "status", "--json").out)["sessions"] == 8
    same = say("store", "migrate", postgres_address)
    assert (same.code, "both places are the same" in same.err) == (2, True)


def test_deleted_sessions_travel_in_both_directions_and_can_be_brought_back_there(
    say: Say, postgres_address: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = paths_of(tmp_path / "home")
    asyncio.run(fill(FileStore(home), 2))
    whole = asyncio.run(discarded(FileStore(home)))

    copied = json.loads(say("store", "migrate", postgres_address, "--json").out)
    assert copied == {"counts": {"copied": 1, "copied (deleted)": 2}, "wrong": []}
    assert say("store", "verify", postgres_address).out == "1 same, 2 same (deleted)\n"

    async def look(store: SessionStore) -> None:
        again, first = await store.trash()
        assert [one.record.session_id for one in (first, again)] == ["s001", "s001"]
        assert [fingerprint(await store.read_trashed(one)) for one in (first, again)] == whole
        await store.restore("s001")
        assert fingerprint(await store.read_whole("s001")) == whole[1]
        assert (store.workspace("s001") / "log.jsonl").read_text() == "kept by a module\n"
        await store.discard(await store.acquire("s001", ME))
        await store.purge("s001")
        await store.close()

    monkeypatch.setenv("AMPLIFIERD_STORE", postgres_address)
    asyncio.run(FileStore(home).purge("s001"))
    assert "2 copied (deleted)" in say("store", "migrate", "files", "--move").out
    assert json.loads(say("store", "status", "--json").out)["deleted"] == 0
    assert "2 copied (deleted)" in say("store", "migrate", postgres_address, "--from", "files").out
    asyncio.run(look(FileStore(home)))
    asyncio.run(look(database()))


async def discarded(store: FileStore) -> list[str]:
    """Delete a session, and another one of that id, and return their fingerprints."""
    found = []
    for name in ("s001", "again"):
        if name == "again":
            await store.add(new_session("s001", name=name, messages=[message("once more")]), ME)
            (store.workspace("s001") / "log.jsonl").write_text("kept by a module\n")
        found.append(fingerprint(await store.read_whole("s001")))
        await store.discard(await store.acquire("s001", ME))
    await store.close()
    return found


def test_a_backup_is_written_at_one_moment_and_read_back_anywhere(
    say: Say,
    postgres_address: str,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AMPLIFIERD_STORE", postgres_address)
    asyncio.run(fill(database(), 5))

    done = say("store", "backup", str(tmp_path / "backup"))

    assert (done.code, "5 sessions" in done.out) == (0, True), done.err
    assert say("store", "verify", str(tmp_path / "backup")).code == 0
    assert "Session 2" in (tmp_path / "backup/sessions/s002/metadata.json").read_text()
    assert "finished backup" in say("store", "backup", str(tmp_path / "backup")).err
    (tmp_path / "backup/sessions/s002/transcript.jsonl").write_text("")
    restored = say("store", "migrate", "files", "--from", str(tmp_path / "backup"))
    assert (restored.code, "4 copied, 1 failed" in restored.out) == (1, True)
    assert "is not as it was written" in restored.out
    monkeypatch.delenv("AMPLIFIERD_STORE")
    assert sorted(line.split()[-1] for line in say("session", "list").out.splitlines()[1:]) == ["0", "1", "3", "4"]
    assert "there is no backup" in say("store", "migrate", "files", "--from", str(tmp_path)).err


@pytest.mark.parametrize("to_database", [True, False])
def test_a_move_that_is_killed_goes_on_where_it_was(
    amplifier: Any, say: Say, postgres_address: str, database: Database, to_database: bool
) -> None:
    files = FileStore(paths_of(amplifier.home))
    asyncio.run(fill(files if to_database else database(), 60, lines=20))
    origin, target = ("files", postgres_address) if to_database else (postgres_address, "files")
    process = amplifier.start("store", "migrate", target, "--from", origin, "--move")
    deadline = time.monotonic() + 30
    while asyncio.run(count(database if to_database else lambda: FileStore(paths_of(amplifier.home)))) < 10:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=30)

    rest = json.loads(say("store", "migrate", target, "--from", origin, "--move", "--json").out)

    assert rest["wrong"] == []
    assert asyncio.run(count(database if to_database else lambda: FileStore(paths_of(amplifier.home)))) == 60
    assert asyncio.run(count((lambda: FileStore(paths_of(amplifier.home))) if to_database else database)) == 0


async def count(open_store: Callable[[], SessionStore]) -> int:
    store = open_store()
    async with store.snapshot() as snapshot:
        found = len(await snapshot.session_ids())
    await store.close()
    return found


def test_sessions_of_a_database_are_run_and_examined(amplifier: Any, postgres_address: str, tmp_path: Path) -> None:
    amplifier.variables["AMPLIFIERD_STORE"] = postgres_address
    assert amplifier("run", "How many harbours are there?").returncode == 0

    assert "How many harbours are there?" in amplifier("session", "list").stdout
    assert not (tmp_path / "home/state/sessions").exists()
    assert "1 session in postgresql://amplifier:***@127.0.0.1" in amplifier("doctor").stdout
