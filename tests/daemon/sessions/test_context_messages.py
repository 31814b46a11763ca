"""What a session is told beside its conversation stays what it was, whoever goes on with it."""

from pathlib import Path

import pytest
from agents_at_work import Agent, Kind
from git_repository import Repository, use_plain_git

from amplifierd.home import Home


def sent(home: Home, session_id: str) -> str:
    """Return all texts of the last request of a session."""
    requests = home.sessions.requests(session_id)
    return "\n".join(str((part.message or {}).get("content")) for part in requests[-1].parts)


async def test_a_file_that_a_bundle_mentions_is_told_once(home: Home, work: Path, tmp_path: Path) -> None:
    (work / "AGENTS.md").write_text("THE-RULES\n")
    agent = Agent(instruction="You know @AGENTS.md by heart.")

    async with home.sessions.open(**agent.source(home, "bundle", tmp_path), working_dir=work) as session:
        await session.execute("What does @AGENTS.md say?")

    assert sent(home, session.session_id).count("THE-RULES") == 1


async def test_a_mention_leads_into_a_collection_that_was_fetched(
    home: Home, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "origin")
    repository.commit({"profiles/a.md": "", "context/x.md": "WHAT-THE-TEAM-KNOWS\n"})
    await home.collections.add("team", f"{repository.source}@main", compile=False)

    async with home.sessions.open(**Agent().source(home, "bundle", tmp_path), working_dir=work) as session:
        await session.execute("Read @team:context/x.md")

    assert sent(home, session.session_id).count("WHAT-THE-TEAM-KNOWS") == 1


async def test_rules_that_are_written_later_do_not_slip_in_when_a_session_is_resumed(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    agent = Agent(["One.", "Two."])
    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("Begin")
    (work / "AGENTS.md").write_text("LATER-RULES\n")

    async with home.sessions.resume(session.session_id) as resumed:
        await resumed.execute("Go on")

    assert "LATER-RULES" not in sent(home, session.session_id)


async def test_files_that_prompts_mentioned_stay_when_another_profile_goes_on(
    home: Home, work: Path, tmp_path: Path, kind: Kind
) -> None:
    agent = Agent(["One.", "Two."], instruction="FIRST-AGENT")
    opened = agent.source(home, kind, tmp_path)
    Agent(instruction="OTHER-AGENT").source(home, "profile", tmp_path)
    other = home.paths.own_profiles / "other.md"
    other.write_text((home.paths.own_profiles / "worker.md").read_text().replace("name: worker", "name: other"))
    if kind == "profile":
        agent.source(home, kind, tmp_path)
    async with home.sessions.open(**opened, working_dir=work) as session:
        await session.execute("Read @notes.md")

    forked = await home.sessions.fork(session.session_id, profile="local/other")
    await home.sessions.change_profile(session.session_id, "local/other")

    for session_id in (forked.session_id, session.session_id):
        async with home.sessions.resume(session_id) as resumed:
            await resumed.execute("Go on")
        told = sent(home, session_id)
        assert [told.count(text) for text in ("buy milk", "OTHER-AGENT", "FIRST-AGENT")] == [1, 1, 0]
        assert told.index("OTHER-AGENT") < told.index("buy milk") < told.index("Read @notes.md")


async def test_what_begins_a_session_survives_compaction(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    (work / "AGENTS.md").write_text("THE-RULES\n")
    (work / "long.md").write_text("A-LONG-FILE " * 800)
    answers = [f"answer-{number:02} " + "word " * 400 for number in range(12)]
    agent = Agent(answers, provider={"context_window": 8000, "max_output_tokens": 500, "usage": "estimate"})

    async with home.sessions.open(**agent.source(home, kind, tmp_path), working_dir=work) as session:
        await session.execute("Read @long.md")
        for number in range(11):
            await session.execute(f"Go on, {number}")

    told = sent(home, session.session_id)
    assert "answer-00" not in told, "the conversation was compacted"
    assert told.count("THE-RULES") == 1
