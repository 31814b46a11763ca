"""Sessions forked from sessions, and sessions found again."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.testing import MockCoordinator
from amplifier_foundation import WORKING_DIR_CAPABILITY, get_working_dir, set_working_dir
from amplifier_foundation.session import (
    find_sessions,
    fork_session,
    fork_session_in_memory,
    get_fork_preview,
    get_session_lineage,
    list_session_forks,
    load_metadata,
    load_transcript,
    resolve_session,
    session_info,
    write_jsonl,
    write_metadata,
    write_transcript,
)

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "first question", "timestamp": "2026-01-01T10:00:00Z"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "tool": "t"}]},
    {"role": "user", "content": "second question", "timestamp": "2026-01-01T11:00:00Z"},
    {"role": "assistant", "content": "final answer"},
]


def store(root: Path, session_id: str, messages: list[dict[str, Any]] | None = None, **metadata: Any) -> Path:
    place = root / session_id
    write_metadata(place, {"session_id": session_id, **metadata})
    write_transcript(place, MESSAGES if messages is None else messages)
    return place


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    place = store(tmp_path, "parent", bundle="b", model="m")
    write_jsonl(place / "events.jsonl", [{"event": "x", "ts": f"2026-01-01T{h}:30:00Z"} for h in ("09", "10", "12")])
    return place


def test_a_fork_is_a_session_of_its_own_up_to_the_turn(parent: Path) -> None:
    fork = fork_session(parent, turn=1, new_session_id="child")

    assert fork.session_dir == parent.parent / "child"
    assert (fork.parent_id, fork.forked_from_turn, fork.message_count, fork.events_count) == ("parent", 1, 3, 1)
    assert [message["role"] for message in load_transcript(fork.session_dir)] == ["user", "assistant", "tool"]
    metadata = load_metadata(fork.session_dir)
    assert set(metadata) == {
        *("session_id", "parent_id", "forked_from_turn", "forked_at"),
        *("created", "turn_count", "bundle", "model"),
    }
    assert (metadata["bundle"], metadata["model"], metadata["turn_count"]) == ("b", "m", 1)
    assert load_transcript(parent) == MESSAGES


def test_a_fork_is_taken_from_the_last_turn_unless_told_otherwise(parent: Path, tmp_path: Path) -> None:
    fork = fork_session(parent, target_dir=tmp_path / "elsewhere", include_events=False)

    assert fork.forked_from_turn == 2
    assert fork.session_dir is not None
    assert fork.session_dir.parent == tmp_path / "elsewhere"
    assert not (fork.session_dir / "events.jsonl").exists()


def test_a_fork_without_usable_events_has_an_empty_log(tmp_path: Path) -> None:
    fork = fork_session(store(tmp_path, "s"), turn=1)

    assert fork.session_dir is not None
    assert (fork.session_dir / "events.jsonl").read_bytes() == b""


@pytest.mark.parametrize("turn", [0, 3, -1])
def test_a_turn_that_is_not_there_leaves_nothing_behind(parent: Path, turn: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        fork_session(parent, turn=turn)
    assert [place.name for place in parent.parent.iterdir()] == ["parent"]


def test_a_session_without_conversation_cannot_be_forked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fork_session(tmp_path)
    with pytest.raises(ValueError, match="out of range"):
        fork_session(store(tmp_path, "empty", []))


def test_a_fork_in_memory_touches_no_file() -> None:
    fork = fork_session_in_memory(MESSAGES, turn=1)
    empty = fork_session_in_memory([], turn=7, parent_id="p")

    assert (fork.parent_id, fork.session_dir, fork.message_count) == ("unknown", None, 3)
    assert fork.messages is not None
    assert (empty.forked_from_turn, empty.messages, empty.parent_id) == (0, [], "p")


def test_a_preview_says_what_the_fork_would_hold(parent: Path) -> None:
    assert get_fork_preview(parent, 1) == {
        "parent_id": "parent",
        "turn": 1,
        "max_turns": 2,
        "message_count": 2,
        "has_orphaned_tools": True,
        "orphaned_tool_count": 1,
        "last_user_message": "first question",
        "last_assistant_message": "",
    }
    assert get_fork_preview(parent, 2)["last_assistant_message"] == "final answer"


def test_ancestors_and_forks_are_known(parent: Path) -> None:
    child = fork_session(parent, turn=1, new_session_id="child").session_dir
    assert child is not None
    grandchild = fork_session(child, new_session_id="grandchild").session_dir
    assert grandchild is not None

    assert [fork["session_id"] for fork in list_session_forks(parent)] == ["child"]
    lineage = get_session_lineage(grandchild)
    assert (lineage["ancestors"], lineage["depth"], lineage["children"]) == (["child", "parent"], 2, [])
    assert get_session_lineage(parent)["children"] == ["child"]


def test_sessions_that_name_each_other_as_parents_do_not_hang(tmp_path: Path) -> None:
    store(tmp_path, "a", parent_id="b")
    b = store(tmp_path, "b", parent_id="a")

    assert get_session_lineage(b)["ancestors"] == ["a"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for project, session_id, created, messages in (
        ("one", "abc-1", "2026-01-01T00:00:00+00:00", MESSAGES[2:]),
        ("one", "abd-2", "2026-02-01T00:00:00", MESSAGES),
        ("two", "xyz-3", None, [{"role": "user", "content": "Größe"}]),
    ):
        metadata = {"created": created} if created else {}
        store(tmp_path / project / "sessions", session_id, messages, **metadata)
    broken = tmp_path / "two" / "sessions" / "corrupt"
    broken.mkdir()
    (broken / "metadata.json").write_text("{", encoding="utf-8")
    return tmp_path


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [session["session_id"] for session in found]


def test_sessions_are_found_newest_first_under_every_condition(root: Path) -> None:
    assert ids(find_sessions(sessions_root=root)) == ["abd-2", "abc-1", "xyz-3"]
    assert ids(find_sessions(sessions_root=root, limit=1)) == ["abd-2"]
    assert ids(find_sessions(sessions_root=root, project="two")) == ["xyz-3"]
    assert ids(find_sessions(sessions_root=root, after="2026-01-01T00:00:00Z")) == ["abd-2", "xyz-3"]
    assert ids(find_sessions(sessions_root=root, before="2026-02-01")) == ["abc-1", "xyz-3"]
    assert ids(find_sessions(sessions_root=root, keyword="gRÖSSe".replace("SS", "ß"))) == ["xyz-3"]
    assert ids(find_sessions(sessions_root=root, status="broken")) == ["abd-2"]


def test_a_session_is_known_by_path_id_or_a_unique_beginning(root: Path) -> None:
    place = root / "one" / "sessions" / "abc-1"

    assert resolve_session(str(place)) == place
    assert resolve_session("abc-1", sessions_root=root) == place
    assert resolve_session("abc", sessions_root=root) == place
    assert resolve_session("x", sessions_root=root, project="two").name == "xyz-3"
    with pytest.raises(ValueError, match="mbiguous"):
        resolve_session("ab", sessions_root=root)
    for unknown in ("nothing", "", str(root)):
        with pytest.raises(FileNotFoundError):
            resolve_session(unknown, sessions_root=root)


def test_the_default_place_is_the_home_of_the_user(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "projects").symlink_to(root)
    monkeypatch.setenv("AMPLIFIER_HOME", str(home))

    assert resolve_session("xyz").name == "xyz-3"


def test_one_session_is_described(root: Path) -> None:
    info = session_info(root / "one" / "sessions" / "abd-2")

    assert (info["project"], info["turn_count"], info["status"]) == ("one", 2, "broken")
    assert info["failure_modes"] == ["missing_tool_results"]


def test_metadata_of_an_application_is_kept_as_it_is(tmp_path: Path) -> None:
    place = store(tmp_path, "s", format_version=1, extra={"a": 1})

    assert json.loads((place / "metadata.json").read_text(encoding="utf-8"))["extra"] == {"a": 1}


def test_the_working_directory_is_a_capability(tmp_path: Path) -> None:
    coordinator = MockCoordinator()
    assert get_working_dir(coordinator) == Path.cwd()
    assert get_working_dir(coordinator, tmp_path) == tmp_path

    set_working_dir(coordinator, tmp_path / "x" / "..")

    assert coordinator.get_capability(WORKING_DIR_CAPABILITY) == str(tmp_path.resolve())
    assert get_working_dir(coordinator, "/elsewhere") == tmp_path.resolve()
