"""Backups of real sessions, and sessions that go on from a backup."""

from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_backup import read_backup

from amplifier_core import ChatResponse, HookResult, TextBlock, ToolCall
from amplifier_core.testing import EventRecorder, MockTool

CALL = ChatResponse(
    content=[TextBlock(text="looking")], tool_calls=[ToolCall(id="c1", name="look", arguments={"at": 1})]
)


def backups(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / "backups").glob(f"transcript_{kind}_*"))


async def test_a_context_that_is_forced_to_compact_is_backed_up_first_message_by_message(
    start_session: Any, tmp_path: Path
) -> None:
    session = await start_session(context={"max_tokens": 2000, "max_tokens_explicit": True})
    seen: list[dict[str, Any]] = []

    async def look(event: str, data: dict[str, Any]) -> HookResult:
        seen.append(data)
        return HookResult()

    session.coordinator.hooks.register("context:pre_compact", look, priority=20, name="later")
    context = session.coordinator.get("context")
    for number in range(40):
        role = "user" if number % 2 == 0 else "assistant"
        await context.add_message({"role": role, "content": f"{number} " + "word " * 100})

    await context.get_messages_for_request(token_budget=2000)

    (file,) = backups(tmp_path, "compact")
    assert len(file.read_text().splitlines()) == 40 + 1
    assert read_backup(file)["messages"] == await context.get_messages()
    assert [data["backup_location"] for data in seen] == [str(file)]
    assert seen[0]["session_id"] == session.session_id


@pytest.mark.parametrize("cleanups_first", [False, True], ids=["session end first", "cleanups first"])
async def test_a_session_with_four_messages_leaves_exactly_one_final_backup_that_contains_them(
    start_session: Any, tmp_path: Path, cleanups_first: bool
) -> None:
    session = await start_session("one", "two")
    await session.execute("first")
    await session.execute("second")
    history = await session.coordinator.get("context").get_messages()
    assert len(history) == 4

    if cleanups_first:
        await session.coordinator.cleanup()
    await session.cleanup()

    (file,) = backups(tmp_path, "final")
    backup = read_backup(file)
    assert backup["messages"] == history
    assert backup["metadata"]["event"] == "session_end"
    assert (backup["metadata"]["message_count"], backup["metadata"]["session_id"]) == (4, session.session_id)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "json"])
async def test_a_session_restored_from_its_backup_goes_on(
    start_session: Any, tmp_path: Path, form: str, compress: bool
) -> None:
    first = await start_session(CALL, "it is blue", format=form, compress=compress)
    await first.coordinator.mount("tools", MockTool("look", {"colour": "blue — ü"}))
    await first.execute("which colour?")
    history = await first.coordinator.get("context").get_messages()
    await first.cleanup()
    (file,) = backups(tmp_path, "final")

    second = await start_session("as I said, blue")
    await second.coordinator.get("context").set_messages(read_backup(file)["messages"])
    answer = await second.execute("sure?")

    provider = second.coordinator.get("providers")["mock"]
    assert answer == "as I said, blue"
    assert [message.role for message in provider.requests[0].messages] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert (await second.coordinator.get("context").get_messages())[: len(history)] == history


async def test_a_session_of_which_nothing_was_said_leaves_no_file(start_session: Any, tmp_path: Path) -> None:
    session = await start_session()

    await session.cleanup()

    assert not (tmp_path / "backups").exists()


async def test_every_turn_is_backed_up_where_that_is_asked_for(start_session: Any, tmp_path: Path) -> None:
    session = await start_session("one", "two", per_turn=True)
    recorder = EventRecorder()
    session.coordinator.hooks.register("backup:written", recorder.record, name="recorder")

    await session.execute("first")
    await session.execute("second")

    written = [data for _, data in recorder.events]
    assert [len(read_backup(file)["messages"]) for file in backups(tmp_path, "turn")] == [2, 4]
    assert [(data["message_count"], data["reason"]) for data in written] == [(2, "turn_end"), (4, "turn_end")]


async def test_two_sessions_share_a_folder_without_touching_each_others_backups(
    start_session: Any, tmp_path: Path
) -> None:
    one = await start_session("a", "b", per_turn=True, max_backups=1)
    other = await start_session("c", per_turn=True, max_backups=1)

    await one.execute("first")
    await other.execute("first")
    await one.execute("second")

    found = {read_backup(file)["metadata"]["session_id"]: file for file in backups(tmp_path, "turn")}
    assert found.keys() == {one.session_id, other.session_id}
    assert len(backups(tmp_path, "turn")) == 2
