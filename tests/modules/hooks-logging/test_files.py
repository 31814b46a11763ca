"""Files: kept open, rotated, made again, and what happens when they cannot be written."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest


def open_logs(folder: Path) -> int:
    """Return how many descriptors of this process lead to a log below the folder."""
    identities = {(status.st_dev, status.st_ino) for status in (path.stat() for path in folder.rglob("*.jsonl"))}
    count = 0
    for descriptor in Path("/dev/fd").iterdir():
        try:
            status = os.fstat(int(descriptor.name))
        except OSError:
            continue
        count += (status.st_dev, status.st_ino) in identities
    return count


async def test_at_most_32_files_stay_open_and_the_closed_ones_go_on(logs: Any) -> None:
    await logs.mount()

    for _ in range(2):
        for number in range(40):
            await logs.emit("plan:start", session_id=f"s{number}")

    assert open_logs(logs.folder) == 32
    assert all(logs.events(f"s{number}") == ["plan:start"] * 2 for number in range(40))


async def test_the_file_in_use_is_the_last_to_be_closed(logs: Any) -> None:
    await logs.mount()
    await logs.emit("plan:start", session_id="busy")
    moved = shutil.move(logs.path("busy"), logs.folder / "moved")  # records go on to the open file, wherever it is

    for number in range(40):
        await logs.emit("plan:start", session_id=f"s{number}")
        await logs.emit("plan:start", session_id="busy")

    assert moved.read_text().count("\n") == 41
    assert not logs.path("busy").exists()


async def test_cleanup_closes_the_files_also_those_of_a_late_session_end(logs: Any) -> None:
    await logs.mount()
    await logs.emit("plan:start")
    assert open_logs(logs.folder) == 1

    logs.cleanup()
    assert open_logs(logs.folder) == 0
    await logs.emit("session:end")

    assert open_logs(logs.folder) == 0


async def test_a_log_that_was_removed_is_made_again(logs: Any) -> None:
    await logs.mount()
    await logs.emit("plan:start")

    shutil.rmtree(logs.folder)
    await logs.emit("plan:end")

    assert logs.events() == ["plan:end"]


async def test_a_log_is_rotated_when_it_would_exceed_max_bytes(logs: Any) -> None:
    await logs.mount(max_bytes=1000, backup_count=2)

    for number in range(30):
        await logs.emit("plan:start", number=number, padding="x" * 200)

    files = {path.name: path.read_text().splitlines() for path in logs.path().parent.iterdir()}
    assert set(files) == {"events.jsonl", "events.jsonl.1", "events.jsonl.2"}
    assert all(path.stat().st_size <= 1000 for path in logs.path().parent.iterdir())
    newest = [*files["events.jsonl.2"], *files["events.jsonl.1"], *files["events.jsonl"]]
    numbers = [int(line.partition('"number": ')[2].partition(",")[0]) for line in newest]
    assert numbers == list(range(30 - len(numbers), 30))


async def test_without_max_bytes_a_log_is_never_rotated(logs: Any) -> None:
    await logs.mount()

    for _ in range(100):
        await logs.emit("plan:start", padding="x" * 10_000)

    assert [path.name for path in logs.path().parent.iterdir()] == ["events.jsonl"]


async def test_a_record_larger_than_max_bytes_is_written_whole(logs: Any) -> None:
    await logs.mount(max_bytes=100)

    await logs.emit("plan:start", padding="x" * 1000)
    await logs.emit("plan:end")

    assert logs.events() == ["plan:end"]
    assert logs.path().with_name("events.jsonl.1").stat().st_size > 1000


async def test_two_writers_of_one_log_rotate_it_once_and_lose_nothing(logs: Any, other_logs: Any) -> None:
    other_logs.folder = logs.folder
    for session_logs in (logs, other_logs):
        await session_logs.mount(max_bytes=1000, backup_count=50)

    for number in range(60):
        await (logs, other_logs)[number % 2].emit("plan:start", number=number, padding="x" * 200)

    files = list(logs.path().parent.iterdir())
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(lines) == 60
    assert len(files) == 30


async def test_what_cannot_be_written_is_counted_and_told_after_recovery(
    logs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    logs.folder.parent.mkdir(exist_ok=True)
    logs.folder.write_text("a file where a folder should be")
    await logs.mount()

    for _ in range(2):
        caplog.clear()
        results = [await logs.emit("plan:start") for _ in range(3)]
        logs.folder.unlink()
        await logs.emit("plan:end")
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        records = logs.records()
        shutil.rmtree(logs.folder)
        logs.folder.write_text("again")

        assert {result.action for result in results} == {"continue"}
        assert [record["event"] for record in records] == ["logging:dropped", "plan:end"]
        assert records[0]["data"] == {"count": 3}
        assert len(errors) == 1


async def test_one_log_that_cannot_be_written_does_not_keep_others_from_being_written(logs: Any) -> None:
    logs.folder.mkdir(parents=True)
    (logs.folder / "bad").write_text("a file where a folder should be")
    await logs.mount()

    for session_id in ("bad", "good", "bad", "good"):
        await logs.emit("plan:start", session_id=session_id)

    assert logs.events("good") == ["plan:start"] * 2
