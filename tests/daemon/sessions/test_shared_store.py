"""Sessions whose store is a database that machines share: the same as in files, from wherever they are reached."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agents_at_work import Agent, Kind, call, open_home
from crashing_sessions import make_place
from crashing_sessions import open_home as open_place

from amplifierd.exceptions import SessionHeldError, SessionNotFoundError
from amplifierd.home import Home
from amplifierd.sessions.events.tree_events import is_delta

READ = call("read_file", file_path="notes.md")


@pytest.fixture(autouse=True)
def store_in_postgres(postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the sessions of every home in one database, those of processes that are started included."""
    monkeypatch.setenv("AMPLIFIERD_STORE", postgres_address)


async def test_a_session_of_every_kind_runs_and_goes_on_in_another_home(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    agent = Agent([READ, "Milk."])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        assert (await session.execute("What do the notes say?")).status == "completed"
        other = open_home(tmp_path / "elsewhere")
        agent.source(other, kind, tmp_path)
        with pytest.raises(SessionHeldError, match=f"process {os.getpid()} "):
            await other.sessions.resume(session.session_id)

    async with other.sessions.resume(session.session_id) as resumed:
        result = await resumed.execute("And again?")

    assert (result.turn, result.status, bool(resumed.repaired)) == (2, "completed", False)
    assert [record.turn_count for record in home.sessions.list().sessions] == [2]
    roles = [message["role"] for message in home.sessions.messages(session.session_id)]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2
    assert all(part.is_exact for request in home.sessions.requests(session.session_id) for part in request.parts)
    assert not home.paths.sessions.exists()
    await other.sessions.close()


async def test_sessions_are_branched_moved_found_and_removed_as_in_files(
    home: Home, work: Path, tmp_path: Path
) -> None:
    agent = Agent([READ, "Milk."])
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work, name="Notes") as session:
        await session.execute("Where is the harbour?")
    session_id = session.session_id

    fork = await home.sessions.fork(session_id, 1)
    clone = await home.sessions.clone(session_id)
    exported = await home.sessions.export(session_id, tmp_path)
    imported = (await home.sessions.import_(exported.path)).record
    await home.sessions.rename(fork.session_id, "Fork")
    await home.sessions.tag(clone.session_id, add=["kept"])

    found = {hit.record.session_id for hit in home.sessions.search("harbour")}
    assert found == {session_id, fork.session_id, clone.session_id, imported.session_id}
    assert [record.session_id for record in home.sessions.list(tag="kept").sessions] == [clone.session_id]
    assert home.sessions.get(fork.session_id).name == "Fork"
    await home.sessions.delete(session_id)
    assert [one.record.session_id for one in home.sessions.deleted()] == [session_id]
    with pytest.raises(SessionNotFoundError):
        home.sessions.get(session_id)
    await home.sessions.restore(session_id)
    checkpoint = home.sessions.checkpoints(home.sessions.get(session_id))
    assert {entry.turn for entry in checkpoint.list()} == {1}  # what this machine kept of it came back as well
    await home.sessions.truncate(session_id, 0)
    assert home.sessions.messages(session_id) == []
    await home.sessions.delete(session_id, forever=True)
    assert session_id not in {record.session_id for record in home.sessions.list().sessions}


async def test_a_process_that_is_killed_in_a_turn_leaves_a_session_that_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "place"
    make_place(place)
    kill_in_a_turn(place)
    home = open_place(place)
    assert await home.sessions.runtime.store.abandoned() == ["killed"]
    assert [turn.session_id for turn in await home.sessions.mark_interrupted()] == ["killed"]

    async with home.sessions.resume("killed") as session:
        result = await session.execute("quick2t0: look")

    assert (result.status, result.turn) == ("completed", 2)
    runs = (place / "work/runs.txt").read_text().splitlines()
    assert [line for line in runs if line.startswith("begin")] == ["begin quick2t0.0"]
    await home.sessions.close()


def kill_in_a_turn(place: Path) -> None:
    """Let another process begin a turn, and kill it while its model speaks."""
    program = Path(__file__).parents[2] / "stand_ins/session_process.py"
    with subprocess.Popen(
        [sys.executable, program, place, "killed", "create"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("slow1t0: note send\n")
        process.stdin.flush()
        next(line for line in process.stdout if "llm:stream_block_delta" in line)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()


async def test_what_is_told_is_stored_however_long_that_takes(home: Home, work: Path, tmp_path: Path) -> None:
    async with home.sessions.open(**Agent([READ, "Milk."]).source(home, "plan", tmp_path), working_dir=work) as session:
        subscription = session.subscribe()
        running = asyncio.create_task(session.execute("What do the notes say?"))
        seen = 0
        async for event in subscription:
            if not is_delta(event["event"]):
                stored = await home.sessions.runtime.store.last_cursor(session.session_id)
                assert stored.seq >= event["sequence"] > seen
                seen = event["sequence"]
            if event["event"] == "execution:done":
                break
        assert (await running).status == "completed"
