"""Sessions of other applications are read in place, whatever shape they are in, and never changed."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_foundation.session import count_turns, write_jsonl, write_metadata
from amplifierd.exceptions import InvalidSessionIdError, MountPlanMissingError, SessionNotFoundError
from amplifierd.paths import Paths
from amplifierd.sessions.recordings.ecosystem import EcosystemSessions
from amplifierd.sessions.recordings.export import export_session
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.signing_keys import SigningKeys
from amplifierd.store.file_store import FileStore
from amplifierd.store.protocol import Holder, SessionQuery

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "List files", "timestamp": "2026-01-02T03:04:05+00:00"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "tool": "ls", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": "notes.md"},
    {"role": "user", "content": "<system-reminder>Be brief.</system-reminder>"},
    {"role": "assistant", "content": [{"type": "text", "text": "There is notes.md"}], "thinking_text": "hm"},
    {"role": "user", "content": "Thanks"},
    {"role": "developer", "content": "Answer in English."},
]


class Projects:
    """A directory of projects as other applications keep it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sessions = EcosystemSessions(root)

    def add(self, session_id: str, project: str = "-work-shop", *, messages: Any = None, **metadata: Any) -> Path:
        directory = self.root / project / "sessions" / session_id
        directory.mkdir(parents=True)
        write_metadata(directory, {"session_id": session_id, "created": "2026-01-02T03:04:05+00:00", **metadata})
        write_jsonl(directory / "transcript.jsonl", MESSAGES if messages is None else messages)
        return directory

    async def ids(self, **query: Any) -> list[str]:
        return [record.session_id for record in (await self.sessions.list(SessionQuery(**query))).sessions]


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path / "projects")


def everything_in(directory: Path) -> dict[str, tuple[str, int]]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}


async def test_a_session_is_presented_as_one_of_ours(projects: Projects) -> None:
    directory = projects.add("s1", name="Shop", bundle="no-such-bundle", model="m", working_dir="/srv/shop", extra=[1])

    record = await projects.sessions.read("s1")

    assert (record.origin, record.name, record.bundle, record.model) == ("amplifier", "Shop", "no-such-bundle", "m")
    assert (record.working_dir, record.turn_count, record.message_count) == ("/srv/shop", 2, 8)
    assert record.created_at == "2026-01-02T03:04:05.000000Z"
    assert record.metadata == {"extra": [1], "project": "-work-shop", "path": str(directory)}
    assert record.load_warnings == []


async def test_messages_become_lines_of_a_transcript(projects: Projects) -> None:
    projects.add("s1")

    messages = await projects.sessions.read_messages("s1")

    assert [message["turn"] for message in messages] == [0, 1, 1, 1, 1, 1, 2, 2]
    assert [message["role"] for message in messages] == [
        *("system", "user", "assistant", "tool", "system", "assistant", "user", "system")
    ]
    assert [message["metadata"]["requested_role"] for message in (messages[4], messages[7])] == ["user", "developer"]
    assert (messages[2]["content"], messages[2]["tool_calls"]) == (None, MESSAGES[2]["tool_calls"])
    assert (messages[3]["tool_call_id"], messages[5]["thinking_text"]) == ("c1", "hm")
    assert messages[1]["timestamp"] == "2026-01-02T03:04:05+00:00"
    assert len({message["id"] for message in messages}) == 8
    assert messages == await EcosystemSessions(projects.root).read_messages("s1")


async def test_events_are_numbered_in_their_order(projects: Projects) -> None:
    directory = projects.add("s1")
    lines = [
        {"ts": "2026-01-02T03:04:05Z", "lvl": "WARNING", "event": "tool:pre", "session_id": "old", "data": {"a": 1}},
        {"timestamp": "2026-01-02T03:04:06Z", "event": "tool:post", "module": "m"},
        {"event": ["odd"], "data": 7},
    ]
    write_jsonl(directory / "events.jsonl", lines)

    events = await projects.sessions.read_events("s1")

    assert [(event["seq"], event["event"], event["lvl"], event["data"]) for event in events] == [
        (1, "tool:pre", "WARNING", {"a": 1}),
        (2, "tool:post", "INFO", {"module": "m"}),
        (3, "unknown", "INFO", {"data": 7}),
    ]
    assert {event["session_id"] for event in events} == {"s1"}
    assert [event["seq"] for event in await projects.sessions.read_events("s1", after_seq=2)] == [3]


async def test_sessions_are_listed_filtered_and_searched(projects: Projects) -> None:
    for number, name in enumerate(["Milk", "Bread"]):
        directory = projects.add(f"s{number}", f"-p{number}", name=name, bundle=f"b{number}")
        os.utime(directory / "transcript.jsonl", (2_000_000_000 + number,) * 2)
    projects.add(
        "s0-0123456789abcdef_helper", "-p0", parent_id="s0", messages=[{"role": "user", "content": "Knäckebrot"}]
    )

    assert (await projects.ids())[:2] == ["s1", "s0"]
    assert await projects.ids(bundle="b0") == ["s0"]
    assert await projects.ids(roots_only=True, sort="name") == ["s1", "s0"]
    assert await projects.ids(root_session_id="s0", sort="session_id") == ["s0", "s0-0123456789abcdef_helper"]
    assert await projects.ids(text="knackebrot") == ["s0-0123456789abcdef_helper"]
    assert await projects.ids(owner="ada") == []
    page = await projects.sessions.list(SessionQuery(limit=1, offset=1))
    assert (len(page.sessions), page.total) == (1, 3)
    hits = await projects.sessions.search("notes.md")
    assert [(hit.record.session_id, hit.snippet, hit.turn) for hit in hits] == [
        ("s1", "There is notes.md", 1),
        ("s0", "There is notes.md", 1),
    ]
    assert await projects.sessions.descendants("s0") == ("s0-0123456789abcdef_helper",)
    assert await projects.sessions.search("") == ()


async def test_a_fork_begins_a_tree_and_a_circle_ends(projects: Projects) -> None:
    projects.add("a", parent_id="b")
    projects.add("b", parent_id="a")
    projects.add("c")
    projects.add("d", parent_id="c", forked_from_turn=1, forked_at="2026-01-03T00:00:00")
    projects.add("e", parent_id="d")
    projects.add("f", parent_id="gone")

    records = {name: await projects.sessions.read(name) for name in "abcdef"}

    assert {name: record.root_id for name, record in records.items() if name in "cdef"} == {
        **{"c": "c", "d": "d", "e": "d", "f": "f"}
    }
    assert records["d"].forked_at == "2026-01-03T00:00:00.000000Z"
    assert set(await projects.ids()) == set("abcdef")
    assert await projects.sessions.descendants("c") == ()


async def test_before_its_first_turn_a_session_is_copied_and_the_original_stays(
    projects: Projects, tmp_path: Path
) -> None:
    directory = projects.add("s1", name="Shop", parent_id="s0", bundle="b")
    write_jsonl(directory / "events.jsonl", [{"event": "tool:pre", "data": {}}])
    before = everything_in(projects.root)

    new = await projects.sessions.copied("s1", {"session": {}}, profile_name="foundation/base", bundle=None)
    store = FileStore(Paths.from_environment(tmp_path / "home", environ={}))
    hold = await store.create(new, Holder.of_this_process("test"))
    await store.append_messages(hold, [{"id": "m", "role": "user", "content": "Go on", "turn": 3}])
    record = await store.read("s1")

    assert (record.origin, record.imported_from, record.name) == (None, str(directory), "Shop")
    assert (record.profile_name, record.bundle, record.parent_session_id) == ("foundation/base", None, None)
    assert (record.turn_count, len(await store.read_messages("s1")), len(await store.read_events("s1"))) == (2, 9, 1)
    assert everything_in(projects.root) == before
    await store.close()


async def test_a_session_is_exported_in_place(projects: Projects, tmp_path: Path) -> None:
    projects.add("s1")
    keys = SigningKeys(Paths.from_environment(tmp_path / "home", environ={}))
    exported = await export_session(projects.sessions, "s1", tmp_path / "x.amplifier-session", keys, SecretValues())
    assert exported.session_ids == ("s1",)


async def test_what_is_not_there_is_told(projects: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await projects.ids() == []
    projects.add("s1", bundle="shop")
    with pytest.raises(SessionNotFoundError):
        await projects.sessions.read("s2")
    with pytest.raises(InvalidSessionIdError):
        await projects.sessions.read("../s1")
    with pytest.raises(MountPlanMissingError, match="bundle 'shop'"):
        await projects.sessions.read_plan("s1")
    monkeypatch.setenv("AMPLIFIER_HOME", str(projects.root.parent))
    assert (await EcosystemSessions().read("s1")).session_id == "s1"


async def test_what_changed_meanwhile_is_seen(projects: Projects) -> None:
    directory = projects.add("s1", name="Before")
    assert (await projects.sessions.read("s1")).name == "Before"
    write_metadata(directory, {"name": "After that"})
    assert (await projects.sessions.read("s1")).name == "After that"


ODD_METADATA = [
    b"",
    b"{",
    b"[1, 2]",
    b"\xff\xfe\x00",
    b"[" * 50_000,
    json.dumps({"session_id": 7, "name": ["x"], "parent_id": "../../etc", "created": 12, "turn_count": -1}).encode(),
    json.dumps({"created": "0001-01-01T00:00:00+14:00", "bundle": {}, "working_dir": "rel", "tags": "x"}).encode(),
    json.dumps({"name": "x" * 999, "turn_count": True, "working_dir": "/a\0b", "forked_from_turn": "2"}).encode(),
    b"\xef\xbb\xbf" + json.dumps({"name": "with a mark"}).encode(),
]


@pytest.mark.parametrize("content", ODD_METADATA, ids=range(len(ODD_METADATA)))
async def test_odd_metadata_hides_no_session(projects: Projects, content: bytes) -> None:
    directory = projects.add("s1")
    (directory / "metadata.json").write_bytes(content)

    record = await projects.sessions.read("s1")

    assert (record.session_id, record.origin, record.message_count) == ("s1", "amplifier", 8)
    assert record.working_dir.startswith("/")
    assert await projects.ids() == ["s1"]


async def test_torn_lines_and_strange_files_cost_only_themselves(projects: Projects) -> None:
    directory = projects.add("s1")
    good = json.dumps({"role": "user", "content": "Hello"}).encode()
    lines = [
        b"{torn",
        b"",
        b"7",
        b"\xff\xff",
        b'{"role": 3}',
        b"[" * 50_000,
        good,
        b'{"role":"assistant","content":{"a":1}}',
        good[:-3],
    ]
    (directory / "transcript.jsonl").write_bytes(b"\n".join(lines))
    messages = await projects.sessions.read_messages("s1")
    assert [(message["content"], message["turn"]) for message in messages] == [("Hello", 1), ('{"a": 1}', 1)]

    (directory / "transcript.jsonl").unlink()
    os.mkfifo(directory / "transcript.jsonl")  # reading it would wait for ever
    assert await projects.sessions.read_messages("s1") == []
    (directory / "events.jsonl").mkdir()
    assert await projects.sessions.read_events("s1") == []
    (projects.root / "a file").write_text("x")
    (projects.root / "-p/sessions/no metadata").mkdir(parents=True)
    (projects.root / "-q").mkdir()
    (projects.root / "-q/sessions").symlink_to(projects.root / "nowhere")
    assert await projects.ids() == ["s1"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=3,
)
entries = st.dictionaries(
    st.sampled_from(["role", "content", "timestamp", "metadata", "tool_call_id", "turn", "id", "event", "data", "ts"]),
    json_values | st.sampled_from(["user", "assistant", "tool", "tool:pre"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata=json_values, lines=st.lists(entries, max_size=5))
async def test_whatever_the_files_say_a_session_can_be_shown_and_copied(
    projects: Projects, metadata: Any, lines: list[Any]
) -> None:
    directory = projects.root / "-p/sessions/s1"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "metadata.json").write_text(json.dumps(metadata))
    for name in ("transcript.jsonl", "events.jsonl"):
        (directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    new = await EcosystemSessions(projects.root).copied("s1", {})

    assert new.record.message_count == len(new.messages) <= len(lines)
    assert len(new.events) == len(lines)
    assert new.record.turn_count <= count_turns(lines)
