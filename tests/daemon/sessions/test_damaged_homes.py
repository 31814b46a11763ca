"""Sessions of a home that is full, read-only, damaged, or written by another version."""

import asyncio
import json
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import warm_python
from agents_at_work import Agent, call, open_home
from other_user import place_for_everybody

from amplifier_core.utils.tool_messages import calls_in, results_in
from amplifierd.exceptions import FormatUnsupportedError, SessionError
from amplifierd.home import Home

READ = call("read_file", file_path="notes.md")


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Let writes fail as they do on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def directory_of(home: Home, session_id: str) -> Path:
    return home.paths.sessions / session_id


async def test_a_record_that_a_power_failure_brings_back_is_put_right_by_the_ends_of_later_turns(
    home: Home, work: Path
) -> None:
    async with home.sessions.open(plan=Agent([READ, "One.", "Two.", "Three."]).sections(), working_dir=work) as session:
        await session.execute("First")
        metadata = directory_of(home, session.session_id) / "metadata.json"
        former = metadata.read_bytes()
        for prompt in ("Second", "Third"):
            await session.execute(prompt)
        wanted = session.record
    metadata.write_bytes(former)

    async with home.sessions.resume(session.session_id) as resumed:
        found, repaired = resumed.record, resumed.repaired
    stored = home.sessions.get(session.session_id)

    for record in (found, stored):
        assert (record.turn_count, record.message_count) == (wanted.turn_count, wanted.message_count) == (3, 8)
        assert (record.usage, record.token_usage) == (wanted.usage, wanted.token_usage)
        assert record.last_activity_at == wanted.last_activity_at
    assert not repaired


@pytest.mark.parametrize("file", ["events.jsonl", "transcript.jsonl"])
@pytest.mark.parametrize("room", [0, 400, 650, 850, 1100, 3000, 6000])
async def test_a_disk_that_is_full_in_the_middle_of_a_turn_ends_the_turn_and_not_the_session(
    home: Home, work: Path, file: str, room: int
) -> None:
    asks = {**READ, "when": {"role": "user"}, "repeat": True}
    steps = [asks, {"text": "Milk.", "when": {"role": "tool"}, "repeat": True}]
    async with home.sessions.open(plan=Agent(steps).sections(), working_dir=work) as session:
        await session.execute("First")
        if file == "transcript.jsonl":
            await session.append_message("user", "Something long. " * 2000)
        with no_file_larger_than((directory_of(home, session.session_id) / file).stat().st_size + room):
            try:
                full = (await session.execute("Second")).status
            except SessionError:
                full = "refused"
        again = await session.execute("Third")

    assert full in ("refused", "failed", "completed")
    assert again.turn == (2 if full == "refused" and room == 0 and file == "transcript.jsonl" else 3)
    assert again.status == "completed"
    _assert_whole(home, session.session_id)
    async with home.sessions.resume(session.session_id) as resumed:
        assert (await resumed.execute("Fourth")).status == "completed"
    _assert_whole(home, session.session_id)


def _assert_whole(home: Home, session_id: str) -> None:
    messages = home.sessions.messages(session_id)
    unanswered: set[str] = set()
    for message in messages:
        results = {result.call_id for result in results_in(message) or ()}
        assert results <= unanswered or not results
        assert results or not unanswered, "a call without its result"
        unanswered = unanswered - results | {one.id for one in calls_in(message)}
    assert not unanswered
    numbers = [event["seq"] for event in home.sessions.events(session_id)]
    assert numbers == sorted(set(numbers))
    for name in ("transcript.jsonl", "events.jsonl"):
        for line in (directory_of(home, session_id) / name).read_bytes().splitlines():
            json.loads(line)


@pytest.mark.parametrize("damage", ["deleted", "garbage", "empty"])
async def test_an_index_that_is_lost_is_built_again(home: Home, work: Path, tmp_path: Path, damage: str) -> None:
    async with home.sessions.open(plan=Agent(["Milk."]).sections(), working_dir=work, name="Shopping") as session:
        await session.execute("What do we need?")
    await home.sessions.close()
    index = home.paths.state / "index.db"
    for leftover in index.parent.glob("index.db-*"):
        leftover.unlink()
    index.unlink()
    if damage != "deleted":
        index.write_bytes(b"not a database at all" * 500 if damage == "garbage" else b"")

    again = open_home(tmp_path)
    assert [record.name for record in again.sessions.list().sessions] == ["Shopping"]
    assert [hit.record.name for hit in again.sessions.search("milk")] == ["Shopping"]
    async with again.sessions.resume(session.session_id) as resumed:
        assert (await resumed.execute("Go on")).status == "completed"
    await again.sessions.close()


async def test_torn_lines_are_cut_off_and_what_follows_is_whole(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["One."]).sections(), working_dir=work) as session:
        await session.execute("First")
    for name in ("transcript.jsonl", "events.jsonl"):
        with (directory_of(home, session.session_id) / name).open("ab") as file:
            file.write(b'{"id": "msg_half", "role": "assis')

    assert len(home.sessions.messages(session.session_id)) == 2
    async with home.sessions.resume(session.session_id) as resumed:
        assert (await resumed.execute("Second")).status == "completed"

    assert len(home.sessions.messages(session.session_id)) == 4
    _assert_whole(home, session.session_id)


async def test_a_clock_that_was_set_back_changes_no_order(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["One."]).sections(), working_dir=work) as session:
        await session.execute("First")
    for name in ("transcript.jsonl", "events.jsonl", "metadata.json"):
        file = directory_of(home, session.session_id) / name
        file.write_text(file.read_text().replace('"202', '"209'))

    async with home.sessions.resume(session.session_id) as resumed:
        result = await resumed.execute("Second")

    assert (result.turn, result.status) == (2, "completed")
    assert result.usage["seconds"] >= 0
    assert [message["turn"] for message in home.sessions.messages(session.session_id)] == [1, 1, 2, 2]
    _assert_whole(home, session.session_id)


async def test_a_session_of_a_newer_version_is_refused_by_name_and_left_alone(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["One."]).sections(), working_dir=work) as session:
        await session.execute("First")
    directory = directory_of(home, session.session_id)
    metadata = directory / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"format_version": 1', '"format_version": 7'))
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}

    with pytest.raises(FormatUnsupportedError, match=r"metadata.json has format 7, this version reads up to 1"):
        await home.sessions.resume(session.session_id)
    with pytest.raises(FormatUnsupportedError):
        await home.sessions.rename(session.session_id, "Mine")

    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()} == before


async def test_a_session_of_an_older_version_is_backed_up_and_goes_on(home: Home, work: Path) -> None:
    async with home.sessions.open(plan=Agent(["One."]).sections(), working_dir=work) as session:
        await session.execute("First")
    metadata = directory_of(home, session.session_id) / "metadata.json"
    kept = ("session_id", "working_dir", "created", "turn_count")
    older = {key: value for key, value in json.loads(metadata.read_text()).items() if key in kept}
    metadata.write_text(json.dumps(older))

    async with home.sessions.resume(session.session_id) as resumed:
        result = await resumed.execute("Second")

    assert (result.turn, result.status) == (2, "completed")
    assert json.loads((metadata.parent / "metadata.json.v0.bak").read_text()) == older
    assert json.loads(metadata.read_text())["format_version"] == 1


READ_ONLY = """
import asyncio, json, os, sys
import amplifierd
from amplifierd.exceptions import SessionError

async def main(directory):
    home = amplifierd.open_home(directory, offline=True)
    page = home.sessions.list()
    one = page.sessions[0].session_id
    print(json.dumps([page.total, home.sessions.get(one).name, len(home.sessions.messages(one))]))
    print(json.dumps([hit.record.name for hit in home.sessions.search("milk")]))
    for attempt in (home.sessions.resume(one), home.sessions.open(plan=home.sessions.plan(one), working_dir="/")):
        try:
            await attempt
        except SessionError as error:
            print("writable" in str(error))

asyncio.run(main(sys.argv[1]))  # what is imported here need not be readable for everyone
print("--")
if os.geteuid() == 0:
    os.setuid(65534)
asyncio.run(main(sys.argv[2]))
"""


async def test_a_read_only_home_is_read_and_says_why_nothing_can_be_opened(work: Path) -> None:
    with place_for_everybody() as place:
        home = open_home(place)
        async with home.sessions.open(plan=Agent(["Milk."]).sections(), working_dir=work, name="Shopping") as session:
            await session.execute("What do we need?")
        await home.sessions.close()
        shutil.copytree(home.paths.home, place / "copy")
        _let_everyone(home.paths.home, 0o555, 0o444)
        _let(home.paths.home.parent, 0o755)
        command = [sys.executable, "-c", READ_ONLY, place / "copy", home.paths.home]
        ran = await asyncio.to_thread(warm_python.run, command, capture_output=True, text=True)
        _let_everyone(home.paths.home, 0o755, 0o644)

    said = ran.stdout.rpartition("--\n")[2].splitlines()
    assert said == ['[1, "Shopping", 2]', '["Shopping"]', "True", "True"], ran.stderr


def _let_everyone(directory: Path, folders: int, files: int) -> None:
    for path in (directory, *directory.rglob("*")):
        _let(path, folders if path.is_dir() else files)


def _let(path: Path, mode: int) -> None:
    path.chmod(mode)
