"""A session that was run in one home goes on in another, with all that is known about it."""

from pathlib import Path

import pytest
from agents_at_work import Agent, Kind, call, open_home

import amplifierd
from amplifierd.exceptions import SessionStateError
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import AllowByRule

READ = call("read_file", file_path="notes.md")


async def taken_along(home: Home, session_id: str, other: Home, folder: Path) -> str:
    """Export a session from one home, import it into another, and return the id that it has there."""
    exported = await home.sessions.export(session_id, folder)
    return (await other.sessions.import_(exported.path)).record.session_id


@pytest.mark.parametrize("kind", ["profile", "plan"])
async def test_an_imported_session_goes_on_where_it_was(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    agent = Agent([READ, "Milk.", {"text": "You asked: {{last_user}}", "assert": {"min_messages": 5}}])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("What do the notes say?")
    other = open_home(tmp_path / "elsewhere")
    agent.source(other, kind, tmp_path)

    session_id = await taken_along(home, session.session_id, other, tmp_path)
    async with other.sessions.resume(session_id) as resumed:
        result = await resumed.execute("And again?")

    assert (result.turn, result.status) == (2, "completed")
    assert bool(resumed.repaired) is False
    assert other.sessions.get(session_id).imported_from == session.session_id
    await other.sessions.close()


async def test_the_bundle_of_a_stranger_s_file_is_neither_fetched_nor_run(
    home: Home, work: Path, tmp_path: Path
) -> None:
    agent = Agent(["Good day.", "Still here."])
    source = agent.source(home, "bundle", tmp_path)
    async with home.sessions.open(**source, working_dir=work) as session:
        await session.execute("Hello")
    other = open_home(tmp_path / "elsewhere")
    session_id = await taken_along(home, session.session_id, other, tmp_path)

    with pytest.raises(SessionStateError, match="does not trust, and its bundle"):
        async with other.sessions.resume(session_id):
            pass
    assert len(other.sessions.messages(session_id)) == 2

    other.bundles.register("agreed", str(source["bundle"]))
    other.bundles.save()
    async with other.sessions.resume(session_id) as resumed:
        assert (await resumed.execute("Again")).turn == 2
    await other.sessions.close()


async def test_the_requests_of_an_imported_session_are_known_word_for_word(
    home: Home, work: Path, tmp_path: Path
) -> None:
    agent = Agent([READ, "Milk."])
    async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
        await session.execute("What do the notes say?")
    other = open_home(tmp_path / "elsewhere")

    session_id = await taken_along(home, session.session_id, other, tmp_path)

    before = home.sessions.requests(session.session_id)
    after = other.sessions.requests(session_id)
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


def keep_elsewhere(root: Path, session_id: str, text: str) -> None:
    """Write a session as other applications do; its last line is torn."""
    theirs = root / "projects/-work/sessions" / session_id
    theirs.mkdir(parents=True)
    (theirs / "metadata.json").write_text('{"bundle": "gone"}')
    lines = f'{{"role": "user", "content": "{text}"}}\n{{"role": "assistant", "content": "Yes."}}\n{{"role": "use'
    (theirs / "transcript.jsonl").write_text(lines)


async def test_a_session_of_another_application_goes_on_in_our_home_and_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    monkeypatch.setenv("AMPLIFIER_HOME", str(theirs))
    for number in range(3):
        keep_elsewhere(theirs, f"s{number}", f"Buy milk {number}")
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    home = amplifierd.open_home(tmp_path / "home", offline=True, overrides={"default_profile": "foundation/offline"})
    sessions = home.sessions
    assert {record.origin for record in sessions.list().sessions} == {"amplifier"}

    async with sessions.resume("s1") as session:
        result = await session.execute("List files")
    forked = await sessions.fork("s2", 1)

    assert (result.turn, result.status) == (2, "completed")
    record = sessions.get("s1")
    assert (record.origin, record.imported_from) == (None, str(theirs / "projects/-work/sessions/s1"))
    assert [message["content"] for message in sessions.messages("s1")][:3] == ["Buy milk 1", "Yes.", "List files"]
    assert (forked.origin, forked.parent_session_id, forked.turn_count) == (None, "s2", 1)
    ids = {forked.session_id, "s0", "s1", "s2"}
    pages = [sessions.list(limit=1, offset=offset) for offset in range(5)]
    assert {page.total for page in pages} == {4}
    assert {record.session_id for page in pages for record in page.sessions} == ids
    assert sorted(hit.record.session_id for hit in sessions.search("milk")) == sorted(ids)
    counts = [record.message_count for record in sessions.list(sort="message_count").sessions]
    assert counts == sorted(counts)
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before
    await sessions.close()
