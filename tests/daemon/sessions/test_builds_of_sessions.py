"""The build that a session began with: it runs that one, wherever it has to come from, or says why it cannot."""

import json
import shutil
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from agents_at_work import Agent

import amplifierd
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.home import Home
from amplifierd.identifiers import ProfileId


def open_machine(folder: Path, depot: Path | None, **settings: str) -> Home:
    builds = {"builds": {"url": str(depot)}} if depot else {}
    return amplifierd.open_home(folder, offline=True, overrides={**builds, **settings})


async def begin(home: Home, work: Path) -> str:
    source = Agent(["One.", "Two."]).source(home, "profile", work)
    async with home.sessions.open(**source, working_dir=work) as session:
        assert (await session.execute("First")).response == "One."
        return session.session_id


async def test_a_session_that_goes_on_on_another_machine_has_its_build_there(
    tmp_path: Path, work: Path, postgres_address: str
) -> None:
    depot = tmp_path / "depot"
    here = open_machine(tmp_path / "here", depot, store=postgres_address)
    session_id = await begin(here, work)
    assert here.is_used(ProfileId.parse("local/worker"))
    await here.sessions.close()
    there = open_machine(tmp_path / "there", depot, store=postgres_address)

    async with there.sessions.resume(session_id) as session:  # a profile of that name is not known there
        assert (await session.execute("Second")).status == "completed"

    record = there.sessions.get(session_id)
    assert there.profiles.find_build("local/worker", record.build_id) is not None
    assert record.load_warnings == []
    assert not there.paths.own_profiles.exists()
    await there.sessions.close()


async def test_a_build_that_cannot_be_had_is_not_replaced_by_another_unless_one_asks_for_it(
    tmp_path: Path, work: Path
) -> None:
    depot = tmp_path / "depot"
    home = open_machine(tmp_path / "home", depot)
    session_id = await begin(home, work)
    before = home.sessions.get(session_id).build_id
    Agent(["One.", "Two."], instruction="Other words.").source(home, "profile", work)
    shutil.rmtree(depot)
    shutil.rmtree(home.paths.profiles)

    with pytest.raises(ProfileCompilationError) as caught:
        await open_machine(tmp_path / "home", depot).sessions.resume(session_id)
    newest = (await open_machine(tmp_path / "home", depot).profiles.ensure("local/worker")).build_id
    assert caught.value.code == "build-unavailable"
    assert caught.value.problems == (
        f"{depot.as_uri()} does not have it",
        f"what the profile says here makes build {newest}",
    )

    home = open_machine(tmp_path / "home", depot)
    await home.sessions.change_profile(session_id, "local/worker")
    async with home.sessions.resume(session_id) as session:
        assert (await session.execute("Second")).status == "completed"
    assert home.sessions.get(session_id).build_id == newest != before
    assert [json.loads(path.read_text())["build_id"] for path in depot.rglob("*.json")] == [newest]


async def test_without_a_place_for_builds_a_session_goes_on_with_the_newest_and_says_so(
    tmp_path: Path, work: Path
) -> None:
    home = open_machine(tmp_path / "home", None)
    session_id = await begin(home, work)
    Agent(["One.", "Two."], instruction="Other words.").source(home, "profile", work)
    shutil.rmtree(home.paths.profiles)

    async with open_machine(tmp_path / "home", None).sessions.resume(session_id) as session:
        await session.execute("Second")
        assert [warning["message"].partition(":")[0] for warning in session.record.load_warnings] == ["build-changed"]


async def test_all_sessions_of_a_build_share_one_lock_on_it(tmp_path: Path, work: Path) -> None:
    home = open_machine(tmp_path / "home", None)
    source = Agent(["One."] * 9).source(home, "profile", work)
    async with AsyncExitStack() as opened:
        sessions = [await opened.enter_async_context(home.sessions.open(**source, working_dir=work)) for _ in range(5)]
        for session in sessions:
            await session.execute("Go on")
        build = home.profiles.find_build("local/worker")
        assert build is not None
        held = open_files_at(build.path)
        await sessions[0].close()
        assert await home.profiles.remove_old_builds(keep=[]) == ()
        still_held = open_files_at(build.path)
    await home.sessions.close()

    assert (held, still_held, open_files_at(build.path)) == (1, 1, 0)


def open_files_at(path: Path) -> int:
    """How many descriptors this process has on a directory."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += descriptor.readlink() == path
    return found


async def test_a_session_runs_the_build_that_its_caller_has_made_sure_of(tmp_path: Path, work: Path) -> None:
    home = open_machine(tmp_path / "home", None)
    profile = Agent(["One."]).source(home, "profile", work)["profile"]
    build = await home.profiles.ensure(profile)
    Agent(["Another."]).source(home, "profile", work)

    async with home.sessions.open(profile, build=build, working_dir=work) as session:
        assert (await session.execute("First")).response == "One."

    assert home.sessions.get(session.session_id).build_id == build.build_id
    await home.sessions.close()
