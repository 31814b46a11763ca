"""What context-persistent promises, point by point."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_context_persistent import PersistentContextManager, mount

from amplifier_core.testing import MockCoordinator

Message = dict[str, Any]


def turns(count: int, size: int = 20) -> list[Message]:
    return [
        message
        for number in range(count)
        for message in (
            {"role": "user", "content": f"question {number} " + "q" * size},
            {"role": "assistant", "content": f"answer {number} " + "a" * size},
        )
    ]


async def add(context: PersistentContextManager, messages: list[Message]) -> None:
    for message in messages:
        await context.add_message(message)


async def test_three_messages_are_three_lines_and_come_back_with_their_timestamps(open_context: Any, file: Any) -> None:
    first = await open_context()
    await add(first, turns(2)[:3])
    assert [line["content"] for line in file.lines()] == [message["content"] for message in turns(2)[:3]]
    assert all(line["metadata"]["timestamp"] for line in file.lines())
    first.close()

    second = await open_context()

    assert await second.get_messages() == await first.get_messages() == file.lines()


async def test_a_resumed_conversation_ignores_set_messages_until_it_is_cleared(
    open_context: Any, file: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await add(await open_context(), turns(1))
    resumed = await open_context()

    with caplog.at_level(logging.INFO):
        await resumed.set_messages([])
    assert len(await resumed.get_messages()) == len(file.lines()) == 2
    assert "0 messages are not taken over, the 2 from" in caplog.text

    await resumed.clear()
    assert (await resumed.get_messages(), file.lines()) == ([], [])
    await resumed.set_messages(turns(3))
    assert await resumed.get_messages() == file.lines() == turns(3)


async def test_a_torn_last_line_costs_that_message_only(
    open_context: Any, file: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = await open_context()
    await add(first, turns(2))
    first.close()
    file.write(file.contents()[:-20])

    second = await open_context()
    await second.add_message({"role": "user", "content": "new"})
    second.close()
    third = await open_context()

    assert [message["content"] for message in await third.get_messages()] == [
        *(message["content"] for message in turns(2)[:3]),
        "new",
    ]
    assert "torn" in caplog.text


async def test_compaction_leaves_the_file_as_it_is(open_context: Any, file: Any) -> None:
    context = await open_context(max_tokens=4000)
    await add(context, turns(60, size=300))
    before = file.contents()

    view = await context.get_messages_for_request()

    assert len(view) < 120
    assert file.contents() == before


async def test_memory_files_above_the_limit_prevent_mounting(tmp_path: Path) -> None:
    (tmp_path / "large.md").write_text("x" * 8000)
    (tmp_path / "small.md").write_text("x" * 40)
    config = {"memory_files": [str(tmp_path / "large.md"), str(tmp_path / "small.md")], "max_tokens": 1000}

    with pytest.raises(RuntimeError, match=r"about 20\d\d tokens, max_tokens is 1000: .*large\.md about 20\d\d.*small"):
        await mount(MockCoordinator(), {**config, "transcript_path": str(tmp_path / "file.jsonl")})

    assert not (tmp_path / "file.jsonl").exists()


async def test_a_missing_memory_file_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "there.md").write_text("remember")
    config = {"memory_files": ["gone.md", "there.md"], "transcript_path": str(tmp_path / "file.jsonl")}
    coordinator = MockCoordinator()
    coordinator.register_capability("session.working_dir", str(tmp_path))

    cleanup = await mount(coordinator, config)

    contents = [message["content"] for message in await coordinator.get("context").get_messages()]
    assert contents == ["[Context from there.md]\n\nremember"]
    assert "gone.md" in caplog.text
    cleanup()


async def test_requests_of_a_long_conversation_read_no_file(open_context: Any) -> None:
    context = await open_context()
    await add(context, turns(2500, size=1))
    opened: list[str] = []
    is_watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if is_watching and event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(watch)

    for _ in range(5):
        await context.get_messages_for_request()

    is_watching = False
    assert [name for name in opened if "context-messages" in name] == []


async def test_it_shares_the_settings_of_every_compacting_context_with_a_smaller_zone(open_context: Any) -> None:
    assert (await open_context()).protected_recent == 0.1
