"""A session that was run in one home goes on in another, with all that is known about it."""

from pathlib import Path

import pytest
from agents_at_work import Agent, Kind, call, open_home

from amplifierd.home import Home
from amplifierd.session_store.file_store import FileStore
from amplifierd.session_store.protocol import Holder
from amplifierd.sessions.approvers import AllowByRule
from amplifierd.sessions.ecosystem import EcosystemSessions
from amplifierd.sessions.export import export_session
from amplifierd.sessions.session_import import import_session
from amplifierd.sessions.stored_requests import requests
from amplifierd.signing_keys import SigningKeys

READ = call("read_file", file_path="notes.md")
ME = Holder.of_this_process("test")


async def exported_from(home: Home, session_id: str, folder: Path) -> Path:
    return (await export_session(FileStore(home.paths), session_id, folder, SigningKeys(home.paths))).path


async def imported_into(home: Home, file: Path) -> str:
    imported = await import_session(file, FileStore(home.paths), ME, SigningKeys(home.paths))
    return imported.record.session_id


@pytest.mark.parametrize("kind", ["profile", "plan"])
async def test_an_imported_session_goes_on_where_it_was(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    agent = Agent([READ, "Milk.", {"text": "You asked: {{last_user}}", "assert": {"min_messages": 5}}])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("What do the notes say?")
    other = open_home(tmp_path / "elsewhere")
    agent.source(other, kind, tmp_path)

    session_id = await imported_into(other, await exported_from(home, session.session_id, tmp_path))
    async with other.sessions.resume(session_id) as resumed:
        result = await resumed.execute("And again?")

    assert (result.turn, result.status) == (2, "completed")
    assert bool(resumed.repaired) is False
    assert other.sessions.get(session_id).imported_from == session.session_id
    await other.sessions.close()


async def test_the_requests_of_an_imported_session_are_known_word_for_word(
    home: Home, work: Path, tmp_path: Path
) -> None:
    agent = Agent([READ, "Milk."])
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        await session.execute("What do the notes say?")
    other = open_home(tmp_path / "elsewhere")

    session_id = await imported_into(other, await exported_from(home, session.session_id, tmp_path))

    before = await requests(FileStore(home.paths), session.session_id)
    after = await requests(FileStore(other.paths), session_id)
    assert [request.to_json() for request in after] == [request.to_json() for request in before] != []
    assert all(part.is_exact for request in after for part in request.parts)
    await other.sessions.close()


async def test_a_library_answers_by_rule_what_a_guard_asks(home: Home, work: Path, tmp_path: Path) -> None:
    write = call("write_file", file_path="new.md", content="x")
    guard = {"module": "hooks-approval", "config": {"audit": {"enabled": False}}}
    agent = Agent([write, "Written.", write, "Written."], hooks=[guard])
    source = agent.source(home, "plan", tmp_path)

    async with home.sessions.open(**source, working_dir=work) as session:
        denied = await session.execute("Write it")
    async with home.sessions.open(**source, working_dir=work, approver=AllowByRule(["write_file"])) as session:
        events = [event async for event in session.stream("Write it")]

    assert denied.status == "completed"
    names = [event["event"] for event in events if event["event"].startswith("approval:")]
    assert names == ["approval:required", "approval:pending", "approval:resolved", "approval:granted"]
    assert (work / "new.md").read_text() == "x"


async def test_a_session_of_another_application_goes_on_in_our_home(home: Home, work: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "projects/-work/sessions/0f5b"
    theirs.mkdir(parents=True)
    (theirs / "metadata.json").write_text('{"bundle": "gone"}')
    (theirs / "transcript.jsonl").write_text(
        '{"role": "user", "content": "Hello"}\n{"role": "assistant", "content": "Hello!"}\n{"role": "use'
    )
    plan = Agent([{"text": "Again: {{last_user}}", "assert": {"min_messages": 3}}]).source(home, "plan", tmp_path)[
        "plan"
    ]

    copy = await EcosystemSessions(tmp_path / "projects").copied("0f5b", plan, working_dir=str(work), bundle=None)
    store = FileStore(home.paths)
    await store.release(await store.create(copy, ME))
    async with home.sessions.resume("0f5b") as session:
        result = await session.execute("Still there?")

    assert (result.turn, result.response) == (2, "Again: Still there?")
