"""A home, its sessions, a bundle cache and a PostgreSQL store that an earlier commit wrote go on with this one.

`earlier/` was written by `tests/stand_ins/earlier_home.py` with the sources of commit c23316b3.
"""

import tarfile
from pathlib import Path

import httpx2
import psycopg
import pytest
from daemon_process import DaemonProcess

import amplifierd
from amplifierd.home import Home

EARLIER = Path(__file__).parent / "earlier"
SESSIONS = ("earlier-bundle", "earlier-plan", "earlier-profile")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the home, and an empty working directory beside it."""
    with tarfile.open(EARLIER / "home.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "work").mkdir()
    return tmp_path


async def goes_on(home: Home, session_id: str, work: Path) -> None:
    """Resume a session, whose directory is gone, in another one."""
    await home.sessions.update(session_id, working_dir=work)
    async with home.sessions.resume(session_id) as session:
        result = await session.execute("And now?")
        assert (result.status, result.turn) == ("completed", 2), result.error
    texts = [str(message["content"]) for message in home.sessions.messages(session_id) if message["role"] == "user"]
    assert ["Remember the milk" in texts[0], "And now?" in texts[-1]] == [True, True]


async def test_its_sessions_are_listed_found_and_resumed(folder: Path) -> None:
    home = amplifierd.open_home(folder / "home", offline=True)
    before = {record.session_id: record for record in home.sessions.list().sessions}
    build = before["earlier-profile"].build_id

    assert tuple(sorted(before)) == SESSIONS
    assert {hit.record.session_id for hit in home.sessions.search("milk")} == set(SESSIONS)
    assert home.profiles.find_build("local/worker", build) is not None
    for session_id in SESSIONS:
        assert home.sessions.requests(session_id)
        await goes_on(home, session_id, folder / "work")

    assert (folder / "work/notes.md").read_text() == "Milk."
    assert home.sessions.get("earlier-profile").build_id == build
    assert [record.load_warnings for record in home.sessions.list().sessions] == [[], [], []]
    await home.sessions.close()


def test_its_sessions_are_served(folder: Path) -> None:
    with DaemonProcess(folder / "home", {}) as daemon:
        token = (folder / "home/config/token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=f"{daemon.url}/api/v1", headers=headers, timeout=60) as api:
            for session_id in SESSIONS:
                api.patch(f"/sessions/{session_id}", json={"working_dir": str(folder / "work")}).raise_for_status()
                answer = api.post(f"/sessions/{session_id}/execute", json={"prompt": "And now?"})
                assert answer.json()["status"] == "completed", answer.text
                events = api.get(f"/sessions/{session_id}/events").json()["events"]
                assert events[0]["event"] == "session:created"


async def test_a_store_in_postgresql_goes_on(folder: Path, postgres_address: str) -> None:
    address, _, schema = postgres_address.partition("?schema=")
    text = (EARLIER / "store.sql").read_text().replace("earlier.", f"{schema}.")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(text.replace("CREATE SCHEMA earlier;", f"CREATE SCHEMA {schema};").encode())
    home = amplifierd.open_home(folder / "home", offline=True, overrides={"store": postgres_address})

    assert [record.session_id for record in home.sessions.list().sessions] == ["earlier-plan"]
    await goes_on(home, "earlier-plan", folder / "work")

    assert home.sessions.events("earlier-plan")[0]["event"] == "session:created"
    await home.sessions.close()
