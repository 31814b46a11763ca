"""What lies in a session's directory, who may read it, and what becomes of it when the disk or a file is at fault."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from other_user import place_for_everybody
from stored_sessions import event, message, new_session

from amplifier_foundation.session import (
    find_sessions,
    get_session_lineage,
    load_metadata,
    load_transcript,
    resolve_session,
    session_info,
)
from amplifierd.exceptions import (
    FormatUnsupportedError,
    HoldLostError,
    MountPlanMissingError,
    SessionError,
    SessionHeldError,
)
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionQuery


@pytest.fixture
def store(file_store: FileStore) -> FileStore:
    return file_store


async def test_everything_is_private_to_its_owner(store: FileStore, paths: Paths, me: Holder) -> None:
    before = os.umask(0)
    try:
        hold = await store.create(new_session("s1", parts={"d" * 64: b"x"}), me)
        await store.append_messages(hold, [message("x")])
        await store.put_document(hold, "approvals", {})
        await store.switch_plan(hold, {}, {"context_messages": []})
        await store.update(hold, name="x")
        await store.release(hold)
        await store.close()
    finally:
        os.umask(before)

    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (paths.state, *paths.state.rglob("*"))}
    assert {path.name for path in found if path.parent == paths.sessions / "s1"} == {
        "approvals.json",
        "context_messages.json",
        "events.jsonl",
        "gate",
        "hold.json",
        "metadata.json",
        "mount_plan.1.json",
        "mount_plan.json",
        "parts.jsonl",
        "transcript.jsonl",
    }
    open_to_others = [path for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)]
    assert open_to_others == []


async def test_the_metadata_has_our_names_and_those_of_the_foundation(
    store: FileStore, paths: Paths, me: Holder
) -> None:
    await store.create(new_session("s1", parent_session_id="s0", forked_from_turn=2), me)

    metadata = load_metadata(paths.sessions / "s1")

    assert metadata["format_version"] == 1
    assert metadata["parent_id"] == metadata["parent_session_id"] == "s0"
    assert metadata["created"] == metadata["created_at"]
    assert {"session_id", "turn_count", "bundle", "model", "forked_from_turn", "forked_at"} <= metadata.keys()
    assert "activity" not in metadata


async def test_the_foundations_utilities_read_our_directories(
    store: FileStore, paths: Paths, tmp_path: Path, me: Holder
) -> None:
    await store.create(new_session("session_a", messages=[message("Hello there")], bundle="b", turn_count=1), me)
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "tool": "bash"}]}
    hold = await store.create(new_session("session_b", parent_session_id="session_a", messages=[message("Go")]), me)
    await store.append_messages(hold, [call])
    await store.delete(await store.create(new_session("session_c"), me))

    found = find_sessions(sessions_root=tmp_path, project="state")
    assert [entry["session_id"] for entry in found] == ["session_b", "session_a"]
    assert [entry["session_id"] for entry in find_sessions(sessions_root=tmp_path, keyword="hello")] == ["session_a"]
    directory = resolve_session("session_b", sessions_root=tmp_path, project="state")
    assert directory == paths.sessions / "session_b"
    assert session_info(directory)["failure_modes"] == ["missing_tool_results"]
    assert session_info(paths.sessions / "session_a")["turn_count"] == 1
    assert get_session_lineage(directory)["ancestors"] == ["session_a"]
    assert load_transcript(directory)[-1] == call


async def test_a_session_of_the_foundation_is_read_and_migrated_when_it_is_held(
    store: FileStore, paths: Paths, me: Holder
) -> None:
    directory = paths.sessions / "old"
    directory.mkdir(parents=True)
    old = {"session_id": "old", "parent_id": "p", "created": "2025-01-01T00:00:00+00:00", "turn_count": 3, "mine": 1}
    (directory / "metadata.json").write_text(json.dumps(old))
    (directory / "transcript.jsonl").write_text('{"role":"user","content":"hi"}\n')

    record = await store.read("old")
    assert (record.parent_session_id, record.created_at, record.turn_count) == ("p", "2025-01-01T00:00:00+00:00", 3)
    assert json.loads((directory / "metadata.json").read_text()) == old

    hold = await store.acquire("old", me)
    assert json.loads((directory / "metadata.json.v0.bak").read_text()) == old
    updated = await store.update(hold, name="new")
    metadata = json.loads((directory / "metadata.json").read_text())
    assert (metadata["format_version"], metadata["mine"], metadata["name"]) == (1, 1, "new")
    assert await store.read("old") == updated
    assert (await store.list(SessionQuery())).sessions == (updated,)
    with pytest.raises(MountPlanMissingError):
        await store.read_plan("old")


async def test_a_newer_format_is_refused_by_name_and_left_alone(store: FileStore, paths: Paths, me: Holder) -> None:
    await store.release(await store.create(new_session("s1"), me))
    await store.create(new_session("s2"), me)
    metadata = paths.sessions / "s1" / "metadata.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "format_version": 7}))
    files = {path: path.read_bytes() for path in metadata.parent.iterdir()}

    with pytest.raises(FormatUnsupportedError, match=r"metadata\.json has format 7, this version reads up to 1"):
        await store.read("s1")
    with pytest.raises(FormatUnsupportedError):
        await store.acquire("s1", me)

    assert {path: path.read_bytes() for path in metadata.parent.iterdir()} == files
    page = await store.list(SessionQuery())
    assert [record.session_id for record in page.sessions] == ["s2"]


async def test_an_update_keeps_what_somebody_else_wrote_into_the_metadata(
    store: FileStore, paths: Paths, me: Holder
) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.update(hold, name="first")
    file = paths.sessions / "s1" / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tags": ["by hand"], "theirs": 1}))

    updated = await store.update(hold, turn_count=1)

    assert (updated.name, updated.tags, updated.turn_count) == ("first", ["by hand"], 1)
    assert json.loads(file.read_text())["theirs"] == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format_version": 1}', '{"format_version": "x"}', "\udcff"])
async def test_unreadable_metadata_is_named_and_hides_no_other_session(
    store: FileStore, paths: Paths, me: Holder, content: str
) -> None:
    await store.create(new_session("s1"), me)
    await store.create(new_session("s2"), me)
    (paths.sessions / "s1" / "metadata.json").write_bytes(content.encode("utf-8", "surrogateescape"))

    with pytest.raises(SessionError, match=r"s1.metadata\.json"):
        await store.read("s1")
    for _ in range(2):
        page = await store.list(SessionQuery())
        assert ([record.session_id for record in page.sessions], page.total) == (["s2"], 1)


async def test_a_directory_that_was_copied_is_a_session_of_its_own(store: FileStore, paths: Paths, me: Holder) -> None:
    hold = await store.create(new_session("s1", messages=[message("findme")]), me)
    await store.release(hold)
    assert (await store.list(SessionQuery())).total == 1
    copy = paths.sessions / "s2"
    copy.mkdir()
    for path in (paths.sessions / "s1").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (paths.sessions / "a file").write_text("no session")
    (paths.sessions / "empty").mkdir()

    later = FileStore(paths)
    assert sorted(record.session_id for record in (await later.list(SessionQuery())).sessions) == ["s1", "s2"]
    assert len(await later.search("findme")) == 2
    await later.close()


@pytest.mark.parametrize("torn", [b'{"id":"m9","content":"half', b"{", b"\xff" * 100_000])
async def test_a_torn_line_is_never_read_and_is_cut_off_by_the_next_holder(
    store: FileStore, paths: Paths, me: Holder, torn: bytes
) -> None:
    hold = await store.create(new_session("s1", messages=[message("a")], events=[event(1)]), me)
    await store.release(hold)
    for name in ("transcript.jsonl", "events.jsonl"):
        with (paths.sessions / "s1" / name).open("ab") as file:
            file.write(torn)

    assert len(await store.read_messages("s1")) == len(await store.read_events("s1")) == 1
    hold = await store.acquire("s1", me)
    await store.append_messages(hold, [message("b")])
    await store.append_events(hold, [event(2)])

    assert [entry["content"] for entry in await store.read_messages("s1")] == ["a", "b"]
    assert [entry["seq"] for entry in await store.read_events("s1")] == [1, 2]
    assert (paths.sessions / "s1" / "transcript.jsonl").read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("size", [10, 1000, 70_000])
async def test_the_latest_events_are_found_from_the_end(store: FileStore, me: Holder, size: int) -> None:
    hold = await store.create(new_session("s1"), me)
    events = [{"seq": number, "data": {"text": "x" * (size + number)}} for number in range(2, 42, 2)]
    await store.append_events(hold, events)

    for after in (1, 2, 5, 20, 39, 40, 99):
        assert await store.read_events("s1", after_seq=after) == [event for event in events if event["seq"] > after]


async def test_a_damaged_line_in_the_middle_costs_only_itself(store: FileStore, paths: Paths, me: Holder) -> None:
    hold = await store.create(new_session("s1", messages=[message("a"), message("b"), message("c")]), me)
    transcript = paths.sessions / "s1" / "transcript.jsonl"
    lines = transcript.read_bytes().split(b"\n")
    transcript.write_bytes(b"\n".join([lines[0], lines[1][:-5], b"", b"[1]", *lines[2:]]))

    assert [entry["content"] for entry in await store.read_messages("s1")] == ["a", "c"]
    await store.append_messages(hold, [message("d")])
    assert len(await store.search("c")) == 1


async def test_a_session_without_a_gate_can_be_held(store: FileStore, paths: Paths, me: Holder) -> None:
    await store.release(await store.create(new_session("s1"), me))
    (paths.sessions / "s1" / "gate").unlink()
    (paths.sessions / "s1" / "hold.json").write_text("garbage")

    hold = await store.acquire("s1", me)
    await store.append_messages(hold, [message("x")])


async def test_a_clock_that_was_set_back_changes_no_order_and_no_hold(
    store: FileStore, paths: Paths, me: Holder
) -> None:
    future = "2199-01-01T00:00:00Z"
    hold = await store.create(new_session("s1", created_at=future, last_activity_at=future), me)
    await store.append_messages(hold, [message("a", timestamp=future)])
    await store.release(hold)
    held = paths.sessions / "s1/hold.json"
    held.write_text(json.dumps({**json.loads(held.read_text()), "since": future}))

    later = await store.acquire("s1", me)
    await store.append_messages(later, [message("b")])

    assert (later.epoch, later.since < future) == (hold.epoch + 1, True)
    assert [entry["content"] for entry in await store.read_messages("s1")] == ["a", "b"]


async def test_what_killed_processes_left_is_removed_when_a_store_is_opened(paths: Paths, me: Holder) -> None:
    old, new, gone = (paths.sessions / name for name in (".new/old", ".new/new", ".trash/gone"))
    for directory in (old, new, gone):
        directory.mkdir(parents=True)
        (directory / "metadata.json").write_text("{}")
    os.utime(old, (0, 0))

    store = FileStore(paths)

    assert [path.exists() for path in (old, new, gone)] == [False, True, False]
    assert (await store.list(SessionQuery())).total == 0
    await store.close()


FULL_DISK = """
async def main():
    store = open_store()
    hold = await store.create(new_session("s1", plan={"n": 0}, messages=[message("kept " + "x" * 2000)]), me)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (home / "state/sessions/s1/transcript.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, limits[1]))
    big = "y" * 5000
    attempts = {
        "append": lambda: store.append_messages(hold, [message("short"), message(big)]),
        "lasting": lambda: store.append_messages(hold, [message(big)], lasting=True),
        "huge": lambda: store.append_messages(hold, [message(big * 200)]),
        "replace": lambda: store.replace_messages(hold, [message(big)]),
        "update": lambda: store.update(hold, metadata={"big": big}),
        "switch": lambda: store.switch_plan(hold, {"n": big}, {}),
        "document": lambda: store.put_document(hold, "approvals", big),
        "parts": lambda: store.put_parts(hold, {"d" * 64: big.encode()}),
        "create": lambda: store.create(new_session("s2", messages=[message(big)]), me),
    }
    for name, attempt in attempts.items():
        try:
            await attempt()
        except SessionError as error:
            say(name, "refused", "room" in str(error))
    await store.list(SessionQuery())
    await store.search("kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await store.append_messages(hold, [message("after")])
    await store.update(hold, name="after")
    await store.close()

asyncio.run(main())
"""


async def test_a_full_disk_refuses_what_does_not_fit_and_loses_nothing(
    store: FileStore, paths: Paths, start_python: Callable[..., Any]
) -> None:
    output, _ = start_python(FULL_DISK, paths.home).communicate(timeout=60)

    names = ("append", "lasting", "huge", "replace", "update", "switch", "document", "parts", "create")
    assert output.splitlines() == [f"{name} refused True" for name in names]
    assert [entry["content"][:5] for entry in await store.read_messages("s1")] == ["kept ", "after"]
    assert (paths.sessions / "s1/transcript.jsonl").read_bytes().count(b"\n") == 2
    record = await store.read("s1")
    assert (record.name, record.revision) == ("after", 1)
    assert await store.read_plan("s1") == {"n": 0}
    assert {path.name for path in (paths.sessions / "s1").iterdir()} == {
        "events.jsonl",
        "gate",
        "hold.json",
        "metadata.json",
        "mount_plan.json",
        "parts.jsonl",
        "transcript.jsonl",
    }
    assert [record.session_id for record in (await store.list(SessionQuery())).sessions] == ["s1"]
    assert list((paths.sessions / ".new").iterdir()) == []


READ_ONLY = """
if os.geteuid() == 0:
    os.setuid(65534)

async def main():
    store = open_store()
    say(json.dumps([record.session_id for record in (await store.list(SessionQuery())).sessions]))
    say(json.dumps([hit.snippet for hit in await store.search("hello")]))
    say(json.dumps(await store.read_plan("s1")), len(await store.read_messages("s1")), await store.holder_of("s1"))
    for attempt in (store.acquire("s1", me), store.create(new_session("s2"), me)):
        try:
            await attempt
        except SessionError as error:
            say("refused", "writable" in str(error))
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def home_of_nobody() -> Iterator[Path]:
    """A directory that an unprivileged process reaches."""
    with place_for_everybody() as directory:
        yield directory
        take_rights(directory, write=False)


def take_rights(directory: Path, *, write: bool) -> None:
    """Let everyone read everything below a directory, and take the right to write from its owner or give it back."""
    for path in (directory, *directory.rglob("*")):
        path.chmod((0o755 if path.is_dir() else 0o644) & (0o555 if write else 0o777))


@pytest.mark.parametrize("with_index", [True, False])
async def test_a_read_only_home_is_read_and_listed(
    home_of_nobody: Path, me: Holder, start_python: Callable[..., Any], with_index: bool
) -> None:
    paths = Paths.from_environment(home_of_nobody, environ={})
    store = FileStore(paths)
    await store.release(await store.create(new_session("s1", messages=[message("hello")]), me))
    await store.close()
    if not with_index:
        paths.index_file.unlink()
    take_rights(home_of_nobody, write=True)

    output, _ = start_python(READ_ONLY, home_of_nobody).communicate(timeout=60)

    assert output.splitlines() == [
        '["s1"]',
        '["hello"]',
        '{"session": {"orchestrator": "loop-basic"}} 1 None',
        "refused True",
        "refused True",
    ]


@contextmanager
def file_size_limit(most: int) -> Iterator[None]:
    """Let this process write no byte of a file beyond a place; with 0, none at all, not even in place."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_hold_that_could_not_be_given_back_keeps_no_one_away_here(
    store: FileStore, paths: Paths, me: Holder
) -> None:
    hold = await store.create(new_session("s1"), me)

    with file_size_limit(0):
        await store.release(hold)
    again = await FileStore(paths).acquire("s1", me)

    await store.append_messages(again, [message("x")])
    with pytest.raises(HoldLostError):
        await store.append_messages(hold, [message("y")])
    with pytest.raises(SessionHeldError):
        await store.acquire("s1", me)


async def test_nothing_is_glued_to_a_line_that_failed_and_could_not_be_taken_back(
    store: FileStore, paths: Paths, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = await store.create(new_session("s1"), me)
    file = paths.sessions / "s1" / "transcript.jsonl"
    await store.append_messages(hold, [message("one")])
    truncate = os.ftruncate

    def cannot_truncate(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "ftruncate", cannot_truncate)
    with file_size_limit(file.stat().st_size + 20), pytest.raises(SessionError):
        await store.append_messages(hold, [message("two")])
    monkeypatch.setattr(os, "ftruncate", truncate)
    assert not file.read_bytes().endswith(b"\n")
    await store.append_messages(hold, [message("three")])

    assert [line["content"] for line in await store.read_messages("s1")] == ["one", "three"]
    assert file.read_bytes().count(b"\n") == 2
