"""Builds that travel: published where `builds.url` says, fetched by their id, else made from their locks."""

import asyncio
import contextlib
import functools
import http.server
import json
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_python

from amplifierd.exceptions import ProfileCompilationError, RefResolutionError
from amplifierd.profiles.builds.lock import ProfileLock

STAND_INS = Path(__file__).parents[2] / "stand_ins"
PROFILE = "local/mine"


class Machines:
    """Machines with the same profile, each with a home somewhere else; `depot` is where their builds lie."""

    def __init__(self, bench: Any, repository: Any, make_wheel: Callable[..., Path]) -> None:
        self.bench, self.repository, self.make_wheel = bench, repository, make_wheel
        self.depot = bench.tmp_path / "depot"
        self.text = bench.profile_text(
            "mine",
            body="Be brief.\n",
            tools=[{"module": "tool-own", "source": f"{repository.source}@main"}],
            agents={"helper": f"{repository.source}@main#agents/helper.md"},
        )

    def home(self, name: str, *, url: str | None = None, text: str | None = None, **settings: Any) -> Any:
        builds = {"url": url if url is not None else str(self.depot), **settings.pop("builds", {})}
        self.bench.home = self.bench.open_home(self.bench.tmp_path / name / "home")
        self.bench.write_profile(text=self.text if text is None else text)
        return self.bench.reopen(builds=builds if builds["url"] else {}, **settings)

    @property
    def archive(self) -> Path:
        (found,) = self.depot.rglob("*.tar.gz")
        return found


@pytest.fixture
def machines(bench: Any, new_repository: Callable[..., Any], make_wheel: Callable[..., Path]) -> Machines:
    make_wheel("leaf", "1.0")
    files = bench.module_files("tool-own", {"agents/helper.md": "Help.\n"}, requires=["leaf"])
    return Machines(bench, new_repository("modules", files), make_wheel)


def files_of(build: Any) -> dict[str, tuple[int, bytes]]:
    """Return what a build has, without what the interpreter leaves in it."""
    return {
        path.relative_to(build.path).as_posix(): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in build.path.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@contextlib.contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve a directory by http, as any server of files does."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    handler = functools.partial(Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def test_a_build_is_the_same_on_every_machine_however_it_came_there(machines: Machines) -> None:
    made = await machines.home("one").profiles.compile(PROFILE)
    assert {path.suffix for path in machines.depot.rglob("*") if path.is_file()} == {".json", ".gz"}

    with served(machines.depot) as url:
        fetched = [
            await machines.home("a", url=str(machines.depot)).profiles.obtain(PROFILE, made.build_id),
            await machines.home("b", url=f"{url}/").profiles.obtain(PROFILE, made.build_id),
        ]
    again = await machines.home("another/place").profiles.compile(PROFILE)
    published = await machines.home("c", url="memory://depot").profiles.compile(PROFILE)
    fetched.append(await machines.home("d", url="memory://depot").profiles.obtain(PROFILE, made.build_id))

    assert [build.build_id for build in (again, published, *fetched)] == [made.build_id] * 5
    assert [files_of(build) for build in fetched] == [files_of(made), files_of(made), files_of(published)]
    assert {(build.status, build.lock.pins("build")) for build in fetched} == {("fresh", ("leaf==1.0",))}
    assert (fetched[0].path / ".deps/leaf.py").is_file()
    assert machines.bench.home.paths.profile_dir(PROFILE).is_symlink() is False  # what the profile means is the same


async def test_a_build_is_published_once_and_a_place_that_fails_stops_no_compile(
    machines: Machines, activity: Any, caplog: pytest.LogCaptureFixture
) -> None:
    machines.depot.write_text("a file is where the directory should be")
    with caplog.at_level(logging.WARNING):
        made = await machines.home("one").profiles.compile(PROFILE)
    assert "is not published: Failed to" in caplog.text
    machines.depot.unlink()

    await machines.home("one").profiles.compile(PROFILE)  # as another process does
    assert made.build_id in machines.archive.name
    before = machines.archive.stat().st_mtime_ns

    for home in (machines.home("one"), machines.home("two")):
        with activity.watching():
            await home.profiles.compile(PROFILE)
        assert not [path for path in activity.written if path.startswith(str(machines.depot))]
    assert (await machines.home("one").profiles.publish(PROFILE)).build_id == made.build_id
    assert machines.archive.stat().st_mtime_ns == before
    await machines.home("one").profiles.publish(PROFILE, force=True)
    assert machines.archive.stat().st_mtime_ns > before


async def test_what_cannot_be_fetched_is_made_from_the_lock_with_the_versions_it_names(machines: Machines) -> None:
    made = await machines.home("one").profiles.compile(PROFILE)
    machines.archive.write_bytes(machines.archive.read_bytes()[:-30])
    machines.make_wheel("leaf", "2.0")
    machines.repository.commit({"agents/helper.md": "Help more.\n"})

    again = await machines.home("two").profiles.obtain(PROFILE, made.build_id)

    assert (again.build_id, again.lock.pins("build")) == (made.build_id, ("leaf==1.0",))
    assert (again.path / "agents/helper.md").read_text() == "Help.\n"
    assert (await machines.home("two").profiles.compile(PROFILE)).build_id != made.build_id


async def test_another_build_is_never_taken_and_what_was_tried_is_told(machines: Machines) -> None:
    made = await machines.home("one").profiles.compile(PROFILE)
    archive, said = machines.archive, next(machines.depot.rglob("*.json"))
    machines.text = machines.text.replace("Be brief.", "Be long.")
    other = await machines.home("one").profiles.compile(PROFILE)
    found = {path.name.partition("-")[0]: path for path in machines.depot.rglob("*.tar.gz")}
    archive.write_bytes(found[other.build_id].read_bytes())

    with pytest.raises(ProfileCompilationError) as caught:
        await machines.home("two").profiles.obtain(PROFILE, made.build_id)

    assert caught.value.code == "build-unavailable"
    assert [problem.partition(": ")[2] for problem in caught.value.problems] == [
        "it is damaged: its hash is different",
        "the profile, one that it extends or its overlay is different here",
    ]
    assert f"--build {made.build_id}" in caught.value.hint
    home = machines.bench.home
    assert not list(home.paths.profiles.glob("local/.builds/mine/*"))

    document = json.loads(said.read_text())
    measured = json.loads(found[other.build_id].with_name(f"{other.build_id}.json").read_text())
    said.write_text(json.dumps(document | {key: measured[key] for key in ("sha256", "size")}))
    archive.rename(archive.with_name(f"{made.build_id}-{measured['sha256']}.tar.gz"))
    with pytest.raises(ProfileCompilationError, match=f"has build {other.build_id} in it"):
        await home.profiles.obtain(PROFILE, made.build_id)
    said.write_text(json.dumps(measured))
    with pytest.raises(ProfileCompilationError, match=f"is about build {other.build_id}"):
        await home.profiles.obtain(PROFILE, made.build_id)
    said.write_text(json.dumps(document | {"format_version": 99}))
    with pytest.raises(ProfileCompilationError, match="has format 99, this version reads up to 1"):
        await home.profiles.obtain(PROFILE, made.build_id)
    with pytest.raises(ProfileCompilationError, match="no place to publish builds is set"):
        await machines.home("two", url="").profiles.obtain(PROFILE, made.build_id)
    said.write_text(json.dumps(document))
    with pytest.raises(ProfileCompilationError, match="is larger than 9,000 bytes"):
        await machines.home("two", builds={"max_bytes": 9000}).profiles.obtain(PROFILE, made.build_id)
    with pytest.raises(RefResolutionError, match="can only be read"):
        await machines.home("two", url="http://127.0.0.1:9").profiles.publish(PROFILE, force=True)
    with pytest.raises(ProfileCompilationError, match=r"s3.*: offline"):
        await machines.home("two", url="s3://bucket/builds", offline=True).profiles.obtain(PROFILE, made.build_id)


async def test_what_the_settings_or_the_machine_do_not_allow_is_not_fetched(machines: Machines) -> None:
    made = await machines.home("one").profiles.compile(PROFILE)

    async def refused(**settings: Any) -> str:
        with pytest.raises(ProfileCompilationError) as caught:
            await machines.home("two", **settings).profiles.obtain(PROFILE, made.build_id)
        return str(caught.value.problems[0])

    assert "matches none of security.allowed_sources" in await refused(security={"allowed_sources": ["./*"]})
    assert "security.require_pinned forbids that" in await refused(security={"require_pinned": True})

    lock_file = made.path / "profile.lock"
    lock_file.chmod(0o600)
    lock = ProfileLock(json.loads(lock_file.read_text()) | {"python": "3.99"})
    lock_file.write_text(json.dumps(lock.data))
    await machines.home("one").profiles.publish(PROFILE, made.build_id, force=True)
    assert "has packages for Python 3.99" in await refused()


async def test_a_damaged_build_is_restored_from_there(machines: Machines) -> None:
    home = machines.home("one")
    made = await home.profiles.compile(PROFILE)
    before = files_of(made)
    (made.path / "agents/helper.md").unlink()
    machines.repository.path.rename(machines.repository.path.with_name("gone"))
    shutil.rmtree(home.paths.cache)

    restored = await machines.home("one").profiles.compile(PROFILE)

    assert restored.build_id == made.build_id
    assert files_of(restored) == before
    assert home.paths.profile_dir(PROFILE).resolve() == restored.path


FETCH = """
import asyncio, json, resource, sys
from pathlib import Path
from amplifierd import open_home

path, shipped, depot, build_id, most = *sys.argv[1:5], int(sys.argv[5])
home = open_home(path, overrides={"builds": {"url": depot}}, shipped_collection=Path(shipped))
if most:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    print(asyncio.run(home.profiles.obtain("local/mine", build_id)).path.name)
except Exception as error:
    print(type(error).__name__, error)
"""

KILLED = (
    FETCH.partition("try:")[0]
    + """
from kill_points import count_changes, import_modules_of, kill_at, spread

def builds():
    return home.paths.profiles / "local/.builds/mine"

def fetch():
    return asyncio.run(home.profiles.obtain("local/mine", build_id))

def start_anew():
    import shutil
    shutil.rmtree(builds(), ignore_errors=True)

start_anew()
import_modules_of(fetch)
start_anew()
total = count_changes(fetch)
for point in spread(total, 12):
    start_anew()
    killed = kill_at(point, fetch)
    found = home.profiles.find_build("local/mine", build_id)
    fetch()
    is_whole = found is None or (found.path / "plan.json").is_file()
    print(json.dumps([killed, is_whole, len(list(builds().glob("[!.]*")))]))
"""
)


def run(program: str, machines: Machines, home: Any, build_id: str, most: int = 0) -> "subprocess.Popen[str]":
    arguments = [home.paths.home, machines.bench.tmp_path / "shipped", machines.depot, build_id, most]
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS)}
    return warm_python.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


async def test_two_processes_a_kill_and_a_full_disk_leave_a_whole_build_or_none(machines: Machines) -> None:
    made = await machines.home("one").profiles.compile(PROFILE)
    home = machines.home("two")
    builds = home.paths.profiles / "local/.builds/mine"

    full = await asyncio.to_thread(run(FETCH, machines, home, made.build_id, 600).communicate, timeout=60)
    assert "File too large" in full[0]
    assert not list(builds.glob("*"))

    processes = [run(FETCH, machines, home, made.build_id) for _ in range(2)]
    said = [(await asyncio.to_thread(process.communicate, timeout=60))[0].strip() for process in processes]
    assert said == [made.build_id] * 2
    assert [path.name for path in builds.iterdir()] == [made.build_id]

    said = await asyncio.to_thread(run(KILLED, machines, home, made.build_id).communicate, timeout=120)
    assert [json.loads(line) for line in said[0].splitlines()] == [[True, True, 1]] * 12
