"""What turns did to files: shown, and undone without touching what somebody else did."""

import os
from pathlib import Path

import pytest
from agents_at_work import Agent, Kind, call

from amplifierd.exceptions import InvalidTurnError, SnapshotRefusedError
from amplifierd.home import Home
from amplifierd.sessions.questions.approval import AllowByRule

WRITES = [
    call("write_file", file_path="new.txt", content="made\n"),
    call("edit_file", file_path="notes.md", old_string="milk", new_string="bread"),
    "Done.",
]


async def test_the_changes_of_a_turn_are_shown_and_undone(home: Home, work: Path, tmp_path: Path, kind: Kind) -> None:
    before = (work / "notes.md").read_text()
    tools = [{"module": "tool-filesystem", "config": {"read_before_write": "off"}}]
    source = Agent(WRITES, tools=tools).source(home, kind, tmp_path)
    async with home.sessions.open(**source, working_dir=work, approver=AllowByRule(["*"])) as session:
        result = await session.execute("Write")
    assert [summary.status for summary in result.tool_calls] == ["done", "done"]

    changes = await home.sessions.changes(session.session_id, 1)
    undone = await home.sessions.undo(session.session_id, 1)

    assert (changes.added, changes.modified, changes.deleted) == (("new.txt",), ("notes.md",), ())
    assert "+- buy bread" in changes.diff
    assert undone is not None
    assert undone.done
    assert (work / "notes.md").read_text() == before
    assert not (work / "new.txt").exists()
    assert home.sessions.messages(session.session_id) == []


async def test_changes_of_a_shell_command_are_undone(home: Home, work: Path, tmp_path: Path) -> None:
    script = [call("bash", command="rm notes.md && mkdir -p a/b && echo x > a/b/c && ln -s a/b/c link"), "Done."]
    source = Agent(script, tools=[{"module": "tool-bash"}]).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work) as session:
        await session.execute("Go")
    assert not (work / "notes.md").exists()

    await home.sessions.undo(session.session_id, 1, what="files")

    assert _names(work) == ["notes.md"]
    assert len(home.sessions.messages(session.session_id)) == 4


async def test_foreign_changes_are_never_overwritten_without_force(home: Home, work: Path, tmp_path: Path) -> None:
    tools = [{"module": "tool-filesystem", "config": {"read_before_write": "off"}}]
    source = Agent(WRITES, tools=tools).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work) as session:
        await session.execute("Write")
    (work / "notes.md").write_text("mine\n")

    refused = await home.sessions.undo(session.session_id, 1)
    kept = (work / "notes.md").read_text(), (work / "new.txt").exists()
    forced = await home.sessions.undo(session.session_id, 1, force=True)

    assert refused is not None
    assert (refused.done, refused.foreign, kept) == (False, ("notes.md",), ("mine\n", True))
    assert forced is not None
    assert forced.done
    assert "buy milk" in (work / "notes.md").read_text()


@pytest.mark.parametrize("script", [["Hello."], [call("bash", command="echo x > made"), "Done."]])
async def test_the_disk_has_a_checkpoint_before_the_first_tool_runs_and_when_the_turn_ends(
    home: Home, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[str]
) -> None:
    records = home.paths.sessions / "s" / "checkpoints" / "records.jsonl"
    synchronise, found = os.fsync, list[tuple[int, bool]]()

    def note(descriptor: int) -> None:
        synchronise(descriptor)
        if records.exists() and os.path.samestat(os.fstat(descriptor), records.stat()):
            found.append((len(records.read_bytes().splitlines()), (work / "made").exists()))

    monkeypatch.setattr(os, "fsync", note)
    source = Agent(script, tools=[{"module": "tool-bash"}]).source(home, "plan", tmp_path)
    async with home.sessions.open(**source, session_id="s", working_dir=work) as session:
        await session.execute("Go")

    assert found == ([(2, False)] if len(script) == 1 else [(1, False), (2, True)])


async def test_a_turn_without_a_checkpoint_is_named(home: Home, work: Path, tmp_path: Path) -> None:
    source = Agent().source(home, "plan", tmp_path)
    async with home.sessions.open(**source, working_dir=work) as session:
        await session.execute("Hello")

    with pytest.raises(InvalidTurnError, match="turn 7"):
        await home.sessions.changes(session.session_id, 7)


async def test_a_directory_that_no_one_vouched_for_is_not_snapshotted(home: Home, tmp_path: Path) -> None:
    record = await home.sessions.create(**Agent().source(home, "plan", tmp_path))

    with pytest.raises(SnapshotRefusedError):
        await home.sessions.changes(record.session_id, 1)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
