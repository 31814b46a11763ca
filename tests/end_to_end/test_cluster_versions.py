"""Two versions of the program on one store, as they are while machines are upgraded one after the other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from cluster_members import Member, Members, until, watching

from amplifier_core import __version__
from amplifierd.store.postgres.schema import FORMAT_VERSION
from amplifierd.store_address import StoreAddress

SOURCE = Path(__file__).parents[2] / "src"
NEWER = "99.0.0"
STEP = """STEPS = (*STEPS, Step("ALTER TABLE sessions ADD COLUMN later text DEFAULT 'x'; "
    "ALTER TABLE members ADD COLUMN later int DEFAULT 1; ALTER TABLE holds ADD COLUMN later int; "
    "ALTER TABLE turns ADD COLUMN later int; ALTER TABLE messages ADD COLUMN later text", readable_by={readable_by}))
FORMAT_VERSION"""


@pytest.fixture(scope="module")
def next_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as its next version may be: with further columns, and a further field of sessions and of requests."""
    source = tmp_path_factory.mktemp("next") / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    _edit(source / "amplifier_core/_version.py", __version__, NEWER)
    schema = source / "amplifierd/store/postgres/schema.py"
    _edit(schema, "FORMAT_VERSION", STEP.format(readable_by=FORMAT_VERSION), times=1)
    _edit(source / "amplifierd/store/record.py", "    takeover: dict", "    later: int = 7\n    takeover: dict")
    _edit(source / "amplifierd/cluster/peers.py", "said = [*headers,", 'said = [*headers, ("x-amplifier-later", "1"),')
    return source


def _edit(path: Path, old: str, new: str, times: int = -1) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, times))


@pytest.fixture
def members(tmp_path: Path, postgres_address: str, next_version: Path) -> Iterator[Members]:
    cluster = Members(tmp_path, postgres_address, sources=(None, next_version))
    yield cluster
    cluster.end()


def test_two_versions_share_a_store_and_hand_sessions_to_each_other(members: Members, postgres_address: str) -> None:
    older, newer = members
    known = {one["member_id"]: one["version"] for one in older.api.get("/cluster").json()["members"]}
    assert known == {older.member_id: __version__, newer.member_id: NEWER}
    of_older, of_newer = members.session(older, "First."), members.session(newer, "First.")
    for member in members:
        for session_id in (of_older, of_newer):
            with watching(member.api, f"/sessions/{session_id}/stream") as stream:
                answer = member.api.post(f"/sessions/{session_id}/execute", json={"prompt": "a"})
                assert answer.json()["status"] == "completed"
                until(lambda stream=stream: "execution:done" in stream.names())  # type: ignore[misc]

    assert older.api.post(f"/cluster/members/{older.member_id}/drain").status_code == 202
    until(lambda: newer.state_of(older) == "left")
    assert newer.api.post(f"/sessions/{of_older}/execute", json={"prompt": "b"}).json()["turn"] == 3
    older.end()
    older.start()  # what the newer one has written is what it goes on with
    assert newer.api.post(f"/cluster/members/{newer.member_id}/drain").status_code == 202
    until(lambda: older.state_of(newer) == "left")
    for session_id in (of_older, of_newer):
        assert older.api.post(f"/sessions/{session_id}/execute", json={"prompt": "c"}).json()["status"] == "completed"
    with _database(postgres_address) as database:
        assert database.execute("SELECT format_version, readable_by FROM format").fetchone() == (
            FORMAT_VERSION + 1,
            FORMAT_VERSION,
        )
        kept = database.execute("SELECT bool_and(record::json->>'later' = '7') FROM sessions").fetchone()
        assert kept == (True,)


def test_a_version_that_cannot_read_the_store_does_not_start_and_says_why(
    postgres_address: str, tmp_path: Path
) -> None:
    member = Member(tmp_path / "home", postgres_address)
    member.start()
    member.end()
    with _database(postgres_address) as database:
        database.execute("UPDATE format SET format_version = 9, readable_by = 8")

    command = [sys.executable, "-m", "amplifierd", "--home", str(tmp_path / "home"), "serve", "--port", "0"]
    environment = os.environ | {"AMPLIFIERD_CLUSTER__TOKEN": "of-the-cluster-0123456789-0123456789"}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert refused.returncode == 2, refused.stderr
    assert f"has format 9, this version reads up to {FORMAT_VERSION}" in refused.stderr


def _database(address: str) -> psycopg.Connection[tuple[object, ...]]:
    store = StoreAddress.parse(address)
    return psycopg.connect(store.conninfo, autocommit=True, options=f"-c search_path={store.schema}")
