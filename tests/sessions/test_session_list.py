"""A list straight from the index says what the store says, or nothing at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from stored_sessions import message, new_session

from amplifier_sessions.index_query import connect, seen_at
from amplifier_sessions.session_directory import first_prompt, pending_directory
from amplifier_sessions.session_list import find_page
from amplifier_sessions.session_query import SessionQuery
from amplifierd import open_home
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

ALL = SessionQuery(sort="session_id")
LONG_AGO_NS = 1_000_000_000_000_000_000


@pytest.fixture
async def paths(tmp_path: Path) -> Paths:
    """A home with four sessions and an index; one of them is a child."""
    paths = Paths.from_environment(tmp_path, environ={})
    store = FileStore(paths)
    for number in range(3):
        new = new_session(f"s{number}", name=f"name {number}", message_count=1, messages=[message(f"hello {number}")])
        await store.release(await store.create(new, Holder.of_this_process("test")))
    child = new_session("s3", root_session_id="s0", parent_session_id="s0", profile_name="a/b", tags=["t"])
    await store.release(await store.create(child, Holder.of_this_process("test")))
    await store.close()
    return paths


def listed(paths: Paths, query: SessionQuery = ALL) -> list[str] | None:
    page = find_page(paths.state, query)
    return None if page is None else [each.session_id for each in page.sessions]


QUERIES = [
    ALL,
    SessionQuery(),
    SessionQuery(roots_only=True, limit=2, offset=1),
    SessionQuery(tag="t"),
    SessionQuery(profile_name="a/b", status="active"),
    SessionQuery(root_session_id="s0"),
    SessionQuery(working_dir="/elsewhere"),
    SessionQuery(since="2999-01-01T00:00:00Z"),
]


@pytest.mark.parametrize("query", QUERIES, ids=str)
async def test_a_page_has_the_sessions_that_the_store_lists(paths: Paths, query: SessionQuery) -> None:
    store = FileStore(paths)
    whole = await store.list(query)
    await store.close()

    page = find_page(paths.state, query)

    assert page is not None
    assert (page.total, [each.session_id for each in page.sessions]) == (
        whole.total,
        [each.session_id for each in whole.sessions],
    )
    assert [(each.name, each.turn_count, each.last_activity_at) for each in page.sessions] == [
        (each.name, each.turn_count, each.last_activity_at) for each in whole.sessions
    ]


def test_a_home_without_sessions_has_an_empty_list_and_nothing_is_made(tmp_path: Path) -> None:
    assert listed(Paths.from_environment(tmp_path / "home", environ={})) == []
    assert not (tmp_path / "home").exists()


def test_what_a_person_changed_in_a_file_is_listed(paths: Paths) -> None:
    file = paths.sessions / "s1/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"name": "by hand"}))

    page = find_page(paths.state, ALL)

    assert page is not None
    assert [each.name for each in page.sessions] == ["name 0", "by hand", "name 2", None]


def copy_a_session(paths: Paths) -> None:
    shutil.copytree(paths.sessions / "s0", paths.sessions / "s4")


def remove_a_session(paths: Paths) -> None:
    shutil.rmtree(paths.sessions / "s2")


def be_killed_before_indexing(paths: Paths) -> None:
    pending = pending_directory(paths.index_file)
    pending.mkdir(exist_ok=True)
    (pending / "abandoned").write_text("s1\n")


def write_metadata_of_another_version(paths: Paths) -> None:
    file = paths.sessions / "s1/metadata.json"
    stored = json.loads(file.read_text())
    del stored["format_version"]
    file.write_text(json.dumps(stored))


def write_a_number_for_a_text(paths: Paths) -> None:
    file = paths.sessions / "s1/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"name": 7}))


def remove_the_index(paths: Paths) -> None:
    paths.index_file.unlink()


def spoil_the_index(paths: Paths) -> None:
    paths.index_file.write_bytes(os.urandom(20_000))


@pytest.mark.parametrize(
    "event",
    [
        copy_a_session,
        remove_a_session,
        be_killed_before_indexing,
        write_metadata_of_another_version,
        write_a_number_for_a_text,
        remove_the_index,
        spoil_the_index,
    ],
)
def test_what_the_index_may_not_know_is_left_to_the_store(paths: Paths, event: Callable[[Paths], None]) -> None:
    event(paths)

    assert listed(paths) is None


async def test_once_the_store_has_looked_the_list_is_there_again(paths: Paths) -> None:
    copy_a_session(paths)
    remove_a_session(paths)
    be_killed_before_indexing(paths)
    store = FileStore(paths)
    await store.list(SessionQuery())
    await store.close()

    assert listed(paths) == ["s0", "s1", "s3", "s4"]


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What other applications keep: a session with a child and a fork, one twice, one of ours, one that is garbled."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "other"))
    projects = tmp_path / "other/projects"
    lines = [
        {"role": "user", "content": "<system-reminder>no prompt</system-reminder>"},
        {"role": "user", "content": "Hello from elsewhere"},
        {"role": "assistant", "content": "Hi"},
    ]
    for place, metadata in {
        "a/sessions/f1": {"created": "2026-01-02T03:04:05+0000", "name": "Shop", "bundle": "b"},
        "a/sessions/f2": {"created": "2027-01-02T03:04:05", "parent_id": "f1"},
        "a/sessions/f3": {"created": "2027-02-02T03:04:05Z", "parent_id": "f1", "forked_from_turn": 1},
        "b/sessions/f1": {"created": "2029-01-02T03:04:05Z", "name": "Later"},
        "b/sessions/s0": {"created": "2029-01-02T03:04:05Z"},
        "b/sessions/f4": [],
    }.items():
        directory = projects / place
        directory.mkdir(parents=True)
        (directory / "metadata.json").write_text(json.dumps(metadata))
        (directory / "transcript.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return projects


@pytest.mark.parametrize(
    "query",
    [
        ALL,
        SessionQuery(roots_only=True),
        SessionQuery(limit=3, offset=2),
        SessionQuery(bundle="b"),
        SessionQuery(tag="t"),
    ],
    ids=str,
)
def test_sessions_of_other_applications_are_listed_as_the_library_does(
    paths: Paths, projects: Path, query: SessionQuery
) -> None:
    whole = open_home(paths.home).sessions.list(query)

    page = find_page(paths.state, query, projects)

    assert page is not None
    assert page.total == whole.total
    assert [(each.session_id, each.name, each.turn_count, each.root_id, each.origin) for each in page.sessions] == [
        (each.session_id, each.name, each.turn_count, each.root_id, each.origin) for each in whole.sessions
    ]
    assert {first_prompt(each.directory) for each in page.sessions if each.origin} <= {"Hello from elsewhere"}


def test_a_text_is_looked_for_by_the_store(paths: Paths) -> None:
    assert listed(paths, replace(ALL, text="hello")) is None


def test_that_nothing_came_or_went_is_remembered_once_it_is_certain(paths: Paths) -> None:
    assert listed(paths) is not None
    with closing(connect(paths.index_file)) as connection:
        assert seen_at(connection) == 0  # the directory changed a moment ago, and may change again unnoticed
    os.utime(paths.sessions, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert listed(paths) is not None
    with closing(connect(paths.index_file)) as connection:
        assert seen_at(connection) == LONG_AGO_NS


def test_the_first_prompt_is_the_first_text_of_a_person(tmp_path: Path) -> None:
    lines = [b"torn {", b"7", b'{"role": "system", "content": "a"}', b'{"role": "user", "content": [{"text": "b"}]}']
    (tmp_path / "transcript.jsonl").write_bytes(b"\n".join([*lines, b'{"role": "user", "content": "c"}', b"\xff"]))

    assert first_prompt(tmp_path) == "c"
    assert first_prompt(tmp_path / "nowhere") == ""
