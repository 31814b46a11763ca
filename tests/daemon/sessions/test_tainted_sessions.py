"""A session that has read outside content and private data says so: in its record, its status and an event."""

from pathlib import Path

import pytest
from agents_at_work import Agent, call, open_home

from amplifierd.home import Home
from amplifierd.sessions.questions.approval import DenyAll

GUARD = {"module": "hooks-approval"}
BASH = {"module": "tool-bash", "config": {"sandbox": "off"}}
BOTH = call("bash", command="echo https://news.example/ ~/diary")
"""A command whose text names the web and a file outside of the working directory; the guard's rules approve it."""


def tainted(home: Home, session_id: str) -> list[str]:
    """Return what the stored events of a session say about it, one after the other."""
    found = []
    for event in home.sessions.events(session_id):
        if event["event"] == "session:tainted":
            found.append(f"by {event['data']['tool_name']}")
        elif event["event"] == "session:updated" and "tainted" in event["data"]["fields_changed"]:
            found.append("updated")
        elif event["event"] == "session:status" and event["data"].get("tainted"):
            found.append("status")
    return list(dict.fromkeys(found))


async def test_its_record_its_status_and_an_event_say_so(home: Home, work: Path) -> None:
    plan = Agent(["Nothing yet.", BOTH, "Done."], tools=[BASH], hooks=[GUARD]).sections()
    async with home.sessions.open(plan=plan, working_dir=work, approver=DenyAll()) as session:
        await session.execute("Wait")
        assert not session.record.tainted
        await session.execute("Look")

        assert session.record.tainted
    assert home.sessions.get(session.session_id).tainted
    assert tainted(home, session.session_id) == ["by bash", "updated", "status"]


async def test_a_child_taints_the_session_that_started_it(home: Home, work: Path) -> None:
    begin = {**call("task", agent="reader", instruction="Look into it"), "when": {"contains": "Begin", "role": "user"}}
    look = {**BOTH, "when": {"contains": "Look into it", "role": "user"}}
    reader = {"description": "Reads", "instruction": "You read."}
    tools = [BASH, {"module": "tool-task", "config": {"exclude_tools": ["tool-task"]}}]
    agent = Agent([begin, look, "Seen.", "Done."], tools=tools, hooks=[GUARD], agents={"reader": reader})
    async with home.sessions.open(plan=agent.sections(), working_dir=work, approver=DenyAll()) as session:
        result = await session.execute("Begin")

    (child,) = home.sessions.children(session.session_id)
    assert result.status == "completed"
    assert tainted(home, child.session_id) == ["by bash", "updated", "status"]
    assert tainted(home, session.session_id) == ["updated", "status"]
    assert [home.sessions.get(one).tainted for one in (session.session_id, child.session_id)] == [True, True]


async def test_a_session_stays_tainted_when_its_context_has_forgotten_why(home: Home, work: Path) -> None:
    plan = Agent(["Hello.", BOTH, "Done."], tools=[BASH], hooks=[GUARD]).sections()
    async with home.sessions.open(plan=plan, working_dir=work, approver=DenyAll()) as session:
        await session.execute("Wait")
        await session.execute("Look")
    await home.sessions.truncate(session.session_id, 1)

    async with home.sessions.resume(session.session_id, approver=DenyAll()) as again:
        ledger = (await again.load()).get_capability("approval.ledger")
        assert (again.record.tainted, ledger.is_tainted) == (True, True)
        await again.execute("Go on")
    assert [event["event"] for event in home.sessions.events(session.session_id)].count("session:tainted") == 1


async def test_a_file_that_a_person_mentions_counts_as_read(home: Home, work: Path) -> None:
    (work / "notes.md").write_text("The word is correct-horse-battery.\n")
    plan = Agent(["Read.", "Hello."], hooks=[GUARD]).sections()
    carried = "https://news.example/?q=correct-horse-battery"
    async with home.sessions.open(plan=plan, working_dir=work, approver=DenyAll()) as session:
        ledger = (await session.load()).get_capability("approval.ledger")
        assert not ledger.carries_read_value(carried)
        await session.execute("Look at @notes.md")
        assert ledger.carries_read_value(carried)
        assert not ledger.has_private_data

    async with home.sessions.resume(session.session_id, approver=DenyAll()) as again:
        ledger = (await again.load()).get_capability("approval.ledger")
        assert ledger.carries_read_value(carried)


async def test_a_mentioned_file_outside_of_the_working_directory_is_private(
    home: Home, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AMPLIFIERD_SECURITY__ALLOW_HOME_MENTIONS", "true")
    (tmp_path / "diary.md").write_text("Dear diary, nothing happened.\n")
    web = call("bash", command="echo https://news.example/")
    plan = Agent([web, "Seen.", "Read."], tools=[BASH], hooks=[GUARD]).sections()
    there = open_home(tmp_path / "there")
    async with there.sessions.open(plan=plan, working_dir=work, approver=DenyAll()) as session:
        await session.execute("Look")
        assert not session.record.tainted
        await session.execute("Look at @~/diary.md")
        assert session.record.tainted
    assert tainted(there, session.session_id) == ["by None", "updated", "status"]
    await there.sessions.close()
