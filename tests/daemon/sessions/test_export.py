"""A session travels in one file: whole, signed, without secrets; and a file from a stranger can do no harm."""

import hashlib
import json
import stat
import tracemalloc
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_system.policy import PolicyError
from amplifierd.exceptions import FormatUnsupportedError, SessionError, SessionImportError, SessionNotFoundError
from amplifierd.keys import Keys
from amplifierd.paths import Paths
from amplifierd.plans.session_policy import session_policy_for
from amplifierd.sessions.events.announcements import Announcements
from amplifierd.sessions.recordings.export import export_session
from amplifierd.sessions.recordings.session_archive import ArchiveLimits, unpack_archive
from amplifierd.sessions.recordings.session_import import import_session
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.signing_keys import SigningKeys
from amplifierd.store.file_store import FileStore
from amplifierd.store.protocol import Hold, Holder, NewSession, SessionQuery
from amplifierd.store.record import SessionRecord, now

SECRET = "sk-ant-api03-0123456789abcdefABCDEF"
ME = Holder.of_this_process("test")


class OneHome:
    """A home with a store and keys."""

    def __init__(self, directory: Path) -> None:
        self.paths = Paths.from_environment(directory, environ={})
        self.store, self.keys = FileStore(self.paths), SigningKeys(self.paths)

    async def add(self, session_id: str, **fields: Any) -> None:
        messages = fields.pop("messages", [{"id": "m1", "role": "user", "content": f"token {SECRET}", "turn": 1}])
        events = fields.pop("events", [])
        plan = fields.pop("plan", {"session": {"orchestrator": {"module": "loop-basic"}}})
        documents = fields.pop("documents", {})
        record = SessionRecord(session_id=session_id, working_dir="/work", created_at=now(), **fields)
        new = NewSession(record, plan, messages=messages, events=events, documents=documents)
        await self.store.release(await self.store.create(new, ME))

    async def export(self, session_id: str, path: Path, **options: Any) -> Path:
        return (await export_session(self.store, session_id, path, self.keys, SecretValues(), **options)).path

    async def take(self, path: Path, **options: Any) -> Any:
        announcements = Announcements(self.store, SecretValues())
        here = {"paths": self.paths, "working_dir": self.paths.home / "work", **options}
        return await import_session(path, self.store, ME, self.keys, announcements, Keys(self.paths).keep, **here)

    async def session_ids(self) -> list[str]:
        page = await self.store.list(SessionQuery(limit=100))
        return sorted(record.session_id for record in page.sessions)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[OneHome]:
    home = OneHome(tmp_path / "home")
    yield home
    await home.store.close()


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[OneHome]:
    other = OneHome(tmp_path / "other")
    yield other
    await other.store.close()


@pytest.fixture
async def exported(home: OneHome, tmp_path: Path) -> Path:
    """A session with a child, exported."""
    events = [
        {"seq": 1, "event": "session:start", "session_id": "s1", "data": {"config": {"api_key": "hidden!"}}},
        {"seq": 2, "event": "tool:intent", "session_id": "s1", "data": {"tool_call_id": "c1"}},
        {"seq": 3, "event": "provider:error", "session_id": "s1", "data": {"error": f"401 with {SECRET}"}},
        {"seq": 4, "event": "tool:outcome", "session_id": "s1", "data": {"tool_call_id": "c1", "content": "done"}},
        {"seq": 5, "event": "session:fork", "session_id": "s1", "data": {"child": "s1-0123456789abcdef_helper"}},
    ]
    providers = [
        {
            "module": "provider-openai",
            "config": {"api_key": SECRET, "service_password": "pa55word!x", "max_tokens": 10, "sort_key": "created_at"},
        },
        {"module": "provider-anthropic", "config": {"api_key": "${MY_KEY}", "base_url": "https://me:pa55word@host/"}},
    ]
    await home.add(
        "s1",
        name="Travels",
        owner="ada",
        events=events,
        plan={"providers": providers},
        settings_overrides={"providers": [{"module": "provider-openai", "config": {"api_key": SECRET}}]},
        metadata={"note": SECRET},
        documents={"context_messages": {"messages": []}, "approvals": {"decisions": {"bash:rm": {}}}},
    )
    await home.add("s1-0123456789abcdef_helper", parent_session_id="s1", root_session_id="s1", created_by="agent")
    return await home.export("s1", tmp_path, find_lock=lambda record: {"build_id": "b1"})


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, entries: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


async def test_a_session_and_its_children_arrive_whole_in_another_home(exported: Path, other: OneHome) -> None:
    imported = await other.take(exported)

    assert exported.name == "s1.amplifier-session"
    assert await other.session_ids() == ["s1", "s1-0123456789abcdef_helper"]
    record = imported.record
    assert (record.name, record.imported_from, record.verified, record.owner) == ("Travels", "s1", False, None)
    child = await other.store.read("s1-0123456789abcdef_helper")
    assert (child.parent_session_id, child.root_session_id, child.verified) == ("s1", "s1", False)
    assert (await other.store.read_messages("s1"))[0]["content"] == f"token {SECRET}"
    assert [event["seq"] for event in await other.store.read_events("s1")] == [1, 2, 3, 4, 5, 6]
    assert await other.store.read_document("s1", "context_messages") == {"messages": []}
    assert await other.store.read_document("s1", "imported_lock") == {"build_id": "b1"}
    assert await other.store.read_document("s1", "approvals") is None
    assert await other.store.holder_of("s1") is None


async def test_secrets_stay_at_home_and_the_plan_can_still_be_run(exported: Path) -> None:
    entries = entries_of(exported)
    for name, content in entries.items():
        assert (SECRET.encode() in content) is name.endswith("/transcript.jsonl"), name
        assert b"hidden!" not in content
        assert b"pa55word" not in content
    openai, anthropic = json.loads(entries["sessions/0/plan.json"])["providers"]
    assert openai["config"] == {"max_tokens": 10, "sort_key": "created_at"}
    assert anthropic["config"]["api_key"] == "${MY_KEY}"


async def test_messages_are_masked_on_request(exported: Path, home: OneHome, tmp_path: Path) -> None:
    shared = await home.export("s1", tmp_path / "shared.zip", mask_messages=True)

    assert not any(SECRET.encode() in content for content in entries_of(shared).values())
    assert json.loads(entries_of(shared)["manifest.json"])["messages"] == "masked"


async def test_the_same_session_gives_the_same_file_for_its_owner_alone(
    exported: Path, home: OneHome, tmp_path: Path
) -> None:
    again = await home.export("s1", tmp_path / "again", find_lock=lambda record: {"build_id": "b1"})

    assert content_and_mode(again) == content_and_mode(exported)
    assert content_and_mode(again)[1] == 0o600


def content_and_mode(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)


async def test_an_export_replaces_a_link_and_writes_nothing_through_it(home: OneHome, tmp_path: Path) -> None:
    await home.add("s1")
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "x.zip").symlink_to(tmp_path / "theirs")

    await home.export("s1", tmp_path / "x.zip")

    assert (tmp_path / "theirs").read_text() == "theirs"
    assert content_and_mode(tmp_path / "x.zip")[1] == 0o600


async def test_who_is_trusted_is_told_from_strangers(exported: Path, home: OneHome, other: OneHome) -> None:
    assert (await home.take(exported)).verified is True  # its own key

    signer = other.keys.trust(home.keys.public_key_file.read_bytes(), "ada")
    imported = await other.take(exported)

    assert (imported.verified, imported.signer) == (True, signer)
    assert (imported.record.verified, imported.record.model_extra["signed_by"]) == (True, signer.key_id)


async def test_the_private_key_is_made_once_and_for_the_owner_alone(home: OneHome) -> None:
    keys = home.paths.config / "keys"
    first = home.keys.sign(b"x")

    assert stat.S_IMODE((keys / "signing.key").stat().st_mode) == 0o600
    assert SigningKeys(home.paths).sign(b"x") == first
    assert "/keys" in (home.paths.config / ".gitignore").read_text()
    (keys / "trusted").mkdir()
    (keys / "trusted/garbage.pub").write_text("not a key")
    assert home.keys.verify(b"x", first).name == "this home"
    with pytest.raises(ValueError, match="does not match"):
        home.keys.verify(b"y", first)


async def test_ids_that_are_taken_are_replaced_throughout(exported: Path, home: OneHome) -> None:
    imported = await home.take(exported)

    root = imported.record.session_id
    child = imported.ids["s1-0123456789abcdef_helper"]
    assert root.startswith("session_")
    assert child == f"{root}-0123456789abcdef_helper"
    assert (await home.store.read(child)).parent_session_id == root
    events = await home.store.read_events(root)
    assert {event["session_id"] for event in events} == {root}
    assert events[-2]["data"]["child"] == child
    assert len(await home.session_ids()) == 4


def changed(entries: dict[str, bytes], name: str, content: bytes) -> dict[str, bytes]:
    return {**entries, name: content}


def with_manifest(entries: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    return changed(entries, "manifest.json", json.dumps({**json.loads(entries["manifest.json"]), **changes}).encode())


TAMPERED: dict[str, Callable[[dict[str, bytes]], dict[str, bytes]]] = {
    "a message was changed": lambda e: changed(e, "sessions/0/transcript.jsonl", b'{"role":"user"}\n'),
    "a file was added": lambda e: changed(e, "sessions/0/approvals.json", b"{}"),
    "a file climbs out": lambda e: changed(e, "../../evil.json", b"{}"),
    "a file is missing": lambda e: {n: c for n, c in e.items() if n != "sessions/1/plan.json"},
    "the manifest was changed": lambda e: with_manifest(e, written_by="me"),
    "the manifest is missing": lambda e: {n: c for n, c in e.items() if n != "manifest.json"},
    "the manifest is not JSON": lambda e: changed(e, "manifest.json", b"[" * 100_000),
    "the signature is garbage": lambda e: changed(e, "signature.json", b'{"algorithm":"ed25519","signature":"!"}'),
    "the signature is of another kind": lambda e: changed(e, "signature.json", b'{"algorithm":"none"}'),
}


@pytest.mark.parametrize("what", TAMPERED)
async def test_a_file_that_was_changed_is_refused_and_nothing_is_stored(
    exported: Path, other: OneHome, tmp_path: Path, what: str
) -> None:
    rewritten(exported, TAMPERED[what](entries_of(exported)))

    with pytest.raises(SessionImportError, match="is not imported"):
        await other.take(exported)

    assert await other.session_ids() == []
    assert not (tmp_path / "evil.json").exists()
    assert not (tmp_path.parent / "evil.json").exists()


def resigned(home: OneHome, path: Path, held: dict[str, bytes], **about: Any) -> Path:
    """Write a file as someone with a key of their own can write it: consistent, and as wrong as they like."""
    hashes = {name: {"sha256": hashlib.sha256(c).hexdigest(), "size": len(c)} for name, c in held.items()}
    heading = {"format": "amplifier-session", "format_version": 1, "sessions": ["s1"], "files": hashes}
    manifest = json.dumps({**heading, **about}).encode()
    signature = json.dumps(home.keys.sign(manifest)).encode()
    return rewritten(path, {"manifest.json": manifest, "signature.json": signature, **held})


RECORD = json.dumps({"session_id": "s1", "working_dir": "/work", "created_at": now()}).encode()


@pytest.mark.parametrize(
    ("files", "about"),
    [
        ({"sessions/0/record.json": RECORD.replace(b"s1", b"../s1")}, {"sessions": ["../s1"]}),
        ({"sessions/0/record.json": RECORD}, {"sessions": ["another"]}),
        ({"sessions/0/record.json": RECORD}, {"sessions": []}),
        ({"sessions/0/record.json": RECORD}, {"sessions": "s1"}),
        ({"sessions/0/record.json": RECORD}, {"files": {"sessions/0/../../record.json": {}}}),
        ({"sessions/0/record.json": b"[]"}, {}),
        ({"sessions/0/record.json": b'{"session_id": "s1"}'}, {}),
        ({"sessions/0/record.json": RECORD, "sessions/0/transcript.jsonl": b"[1]\n"}, {}),
        ({"sessions/0/record.json": RECORD, "sessions/0/transcript.jsonl": b'{"role": 1}\n'}, {}),
        ({"sessions/0/record.json": RECORD, "sessions/0/plan.json": b'"rm"'}, {}),
        (
            {"sessions/0/record.json": RECORD, "sessions/1/record.json": RECORD.replace(b"s1", b"s2")},
            {"sessions": ["s1", "s2"]},
        ),
        ({"sessions/0/record.json": RECORD, "sessions/0/parts.jsonl": b'{"digest":"00","text":"x"}\n'}, {}),
        ({"sessions/0/record.json": RECORD, "sessions/0/parts.jsonl": b'{"digest":"00","base64":7}\n'}, {}),
        ({"sessions/0/record.json": RECORD}, {"format": "something else"}),
        ({"sessions/0/record.json": RECORD}, {"format_version": True}),
        ({}, {}),
    ],
)
async def test_a_consistent_file_with_nonsense_in_it_is_refused(
    home: OneHome, tmp_path: Path, files: dict[str, bytes], about: dict[str, Any]
) -> None:
    path = resigned(home, tmp_path / "x.amplifier-session", files, **about)
    with pytest.raises(SessionImportError):
        await home.take(path)
    assert await home.session_ids() == []


async def test_a_newer_format_is_refused_as_that(home: OneHome, tmp_path: Path) -> None:
    path = resigned(home, tmp_path / "x.amplifier-session", {}, format_version=2)
    with pytest.raises(FormatUnsupportedError, match="has format 2, this version reads up to 1"):
        await home.take(path)


async def test_a_file_without_a_signature_is_a_strangers(exported: Path, home: OneHome) -> None:
    rewritten(exported, {name: content for name, content in entries_of(exported).items() if name != "signature.json"})
    imported = await home.take(exported)
    assert (imported.verified, imported.record.verified, imported.signer) == (False, False, None)


async def test_no_more_is_unpacked_than_allowed(home: OneHome, tmp_path: Path) -> None:
    bomb = {"sessions/0/record.json": RECORD, "sessions/0/transcript.jsonl": b" " * 3_000_000}
    path = resigned(home, tmp_path / "bomb.amplifier-session", bomb)
    assert path.stat().st_size < 20_000
    for limits in (ArchiveLimits(file_bytes=1_000_000), ArchiveLimits(total_bytes=1_000_000)):
        with pytest.raises(SessionImportError, match="larger than"):
            await home.take(path, limits=limits)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_a_small_file_that_would_fill_the_memory_is_not_unpacked(
    home: OneHome, tmp_path: Path, method: int
) -> None:
    path = tmp_path / "bomb.amplifier-session"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("manifest.json", bytes(20_000_000))
    assert path.stat().st_size < 5000

    with pytest.raises(SessionImportError, match=r"'manifest\.json' is compressed with (bzip2|lzma)"):
        await home.take(path)


async def test_a_file_that_is_itself_too_large_is_not_opened(home: OneHome, tmp_path: Path) -> None:
    path = resigned(home, tmp_path / "x.amplifier-session", {"sessions/0/record.json": RECORD})
    with pytest.raises(SessionImportError, match="it is larger than the 500 bytes"):
        await home.take(path, limits=ArchiveLimits(total_bytes=500))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"x" * 100])
async def test_what_is_not_such_a_file_is_refused(home: OneHome, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.amplifier-session"
    path.write_bytes(content)
    with pytest.raises(SessionImportError, match="damaged, or not an exported session"):
        await home.take(path)
    with pytest.raises(SessionImportError, match="cannot be read"):
        await home.take(tmp_path / "none")
    with pytest.raises(SessionNotFoundError):
        await home.export("none", tmp_path)


async def test_when_a_child_cannot_be_stored_nothing_stays(exported: Path, tmp_path: Path) -> None:
    class FullDisk(FileStore):
        async def create(self, new: NewSession, holder: Holder) -> Hold:
            if new.record.parent_session_id:
                raise SessionError("no room")
            return await super().create(new, holder)

    full = OneHome(tmp_path / "full")
    full.store = FullDisk(full.paths)
    with pytest.raises(SessionError, match="no room"):
        await full.take(exported)
    assert await full.session_ids() == []
    await full.store.close()


HOSTILE_PLAN = {
    "session": {
        "orchestrator": {"module": "loop-basic"},
        "policy": {
            "read": {"allow": ["/", "~/.ssh", "HOME/config"], "deny": ["~/ledger"]},
            "write": {"allow": ["/"]},
            "network": {"allow": ["*", "private", "attacker.example"], "commands": "open"},
            "environment": {"pass": ["*", "ANTHROPIC_API_KEY"]},
        },
    }
}


async def test_a_policy_in_a_file_allows_nothing_that_this_home_does_not(home: OneHome, tmp_path: Path) -> None:
    plan = json.dumps(HOSTILE_PLAN).replace("HOME", str(home.paths.home)).encode()
    files = {"sessions/0/record.json": RECORD, "sessions/0/plan.json": plan}
    await home.take(resigned(home, tmp_path / "x.amplifier-session", files))

    stored = await home.store.read_plan("s1")
    policy = session_policy_for(stored, paths=home.paths, working_dir=tmp_path / "work")

    secret = [Path.home() / ".ssh/id_rsa", home.paths.config / "daemon.yaml", Path.home() / "ledger/2026"]
    assert [policy.may_read(place) for place in (*secret, tmp_path / "notes.md")] == [False, False, False, True]
    policy.check_write(tmp_path / "work/notes.md")
    with pytest.raises(PolicyError):
        policy.check_write(tmp_path / "notes.md")
    assert stored["session"]["policy"]["network"]["ask"] == ["attacker.example"]
    assert policy.environment({"ANTHROPIC_API_KEY": "x", "LANG": "C"}) == {"LANG": "C"}


@pytest.mark.parametrize("place", ["/", "~", "HOME/config", ".", "../..", "x" * 5000, "/nul\0"])
async def test_a_session_from_a_file_works_where_sessions_may(home: OneHome, tmp_path: Path, place: str) -> None:
    said = {"working_dir": place.replace("HOME", str(home.paths.home)), "is_trusted": True, "on_takeover": "continue"}
    record = json.dumps({**json.loads(RECORD), **said}).encode()

    imported = await home.take(resigned(home, tmp_path / "x.amplifier-session", {"sessions/0/record.json": record}))

    assert Path(imported.record.working_dir) == home.paths.home / "work"
    assert (imported.record.is_trusted, imported.record.on_takeover) == (False, "ask")


@pytest.mark.parametrize("number", [2**63, -1, True, 1.5, "7", None, 10**400])
async def test_an_event_with_a_number_that_no_store_has_is_refused(
    home: OneHome, tmp_path: Path, number: object
) -> None:
    event = json.dumps({"event": "session:start", "seq": number, "session_id": "s1", "data": {}}).encode() + b"\n"
    files = {"sessions/0/record.json": RECORD, "sessions/0/events.jsonl": event}
    path = resigned(home, tmp_path / "x.amplifier-session", files)

    with pytest.raises(SessionImportError, match="has no valid number"):
        await home.take(path)
    assert await home.session_ids() == []


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    home = OneHome(tmp_path_factory.mktemp("home"))
    path = home.paths.home / "x.amplifier-session"
    home.paths.home.mkdir(exist_ok=True)
    resigned(home, path, {"sessions/0/record.json": RECORD})
    return path, path.read_bytes()


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_changed_byte_is_found_or_changes_nothing(small_file: tuple[Path, bytes], place: int, byte: int) -> None:
    path, content = small_file
    damaged = bytearray(content)
    damaged[place % len(content)] = byte
    path.write_bytes(damaged)
    with TemporaryDirectory(dir=path.parent) as folder:
        try:
            archive = unpack_archive(path, Path(folder))
        except (SessionImportError, FormatUnsupportedError):
            return
        found = {name: file.read_bytes() for name, file in archive.files.items()}
    assert found == {"sessions/0/record.json": RECORD}


MIB = 1 << 20


async def test_a_large_session_is_exported_and_imported_a_part_at_a_time(
    home: OneHome, other: OneHome, tmp_path: Path
) -> None:
    names = ("tool:post", "tool:outcome", "provider:request")
    events = [
        {"seq": seq, "ts": now(), "lvl": "INFO", "event": names[seq % 3], "data": {"text": f"{seq} " * 600}}
        for seq in range(1, 5000)
    ]
    await home.add("large", events=events)
    size = (home.paths.sessions / "large/events.jsonl").stat().st_size
    events.clear()
    reported: list[str] = []

    with memory_below(size // 3):
        path = await home.export(
            "large", tmp_path / "large.amplifier-session", progress=lambda one: reported.append(one.phase)
        )
    with memory_below(size // 3):
        imported = await other.take(path, progress=lambda one: reported.append(one.phase))

    assert size > 12 * MIB
    assert reported.count("ready") == 2
    arrived = await other.store.read_events(imported.record.session_id)
    assert [event["seq"] for event in arrived] == list(range(1, 5001))  # the last one says that it was created
    assert not any(map(turns_in, (other.paths.sessions / ".new", tmp_path)))


def turns_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".export-") or folder.name == ".new"]


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / MIB:.1f} MiB"
