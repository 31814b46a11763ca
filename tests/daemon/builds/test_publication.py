"""Builds never change under whoever uses them, and go when nobody does."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_python

from amplifier_foundation.sources import ProgressEvent
from amplifierd import open_home
from amplifierd.exceptions import ProfileCompilationError, ProfileNotFoundError
from amplifierd.identifiers import ProfileId
from amplifierd.profiles.builds.publication import remove_profile, replace_profile_text

MINE = ProfileId("local", "mine")

HOLD = """
import sys
from amplifierd import open_home
build = open_home(sys.argv[1]).profiles.find_build("local/mine")
with build.import_path():
    print("holding", flush=True)
    sys.stdin.read()
"""

COMPILE = """
import asyncio, sys
from amplifierd import open_home
steps = []
home = open_home(sys.argv[1], progress=lambda event: steps.append((event.what, event.phase)))
print("ready", flush=True)
sys.stdin.readline()
build = asyncio.run(home.profiles.compile("local/mine"))
print(build.path, steps.count(("profile", "fetching")), flush=True)
"""

RUN = """
import asyncio, sys
from amplifier_core import AmplifierSession
from amplifierd import open_home
from amplifierd.profiles.builds.module_resolver import DaemonModuleSourceResolver

async def main(home_path, profile_id):
    home = open_home(home_path)
    plan = await home.plans.generate(profile_id)
    build = home.profiles.find_build(profile_id)
    with build.import_path():
        session = AmplifierSession(plan)
        resolver = DaemonModuleSourceResolver(home.paths.share, pins={profile_id: build.path})
        await session.coordinator.mount("module-source-resolver", resolver)
        await session.initialize()
        for line in sys.stdin:
            result = await session.coordinator.get("tools")["own"].execute({})
            print(result.output, flush=True)
        await session.cleanup()

asyncio.run(main(*sys.argv[1:]))
"""

TOOL = """
from amplifier_core import ToolResult

class Own:
    name = "own"
    description = "Says which code it is."
    input_schema = {{"type": "object", "properties": {{}}}}

    async def execute(self, input):
        from . import words
        return ToolResult(output=f"{version} {{words.WORD}}")

async def mount(coordinator, config=None):
    await coordinator.mount("tools", Own(), name="own")
"""


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start programs that are ended with the test."""
    running: list[subprocess.Popen[str]] = []

    def run(program: str, *arguments: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", program, *map(str, arguments)]
        running.append(warm_python.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def ask(process: "subprocess.Popen[str]", line: str = "") -> str:
    """Send a line if there is one to send, and return the next line of the answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def test_a_held_build_stays_as_it_is_and_goes_when_its_holder_was_killed(
    bench: Any, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    bench.write_profile(tools=[{"module": "tool-own", "source": bench.write_module("tool-own")}])
    first = await bench.home.profiles.compile("local/mine")
    holder = start(HOLD, bench.home.paths.home)
    assert ask(holder) == "holding"
    before = contents(first.path)

    bench.write_module("tool-own", {"amplifier_module_tool_own/__init__.py": "x = 2\n"})
    second = await bench.home.profiles.compile("local/mine")
    assert await bench.home.profiles.remove_old_builds() == ()

    assert contents(first.path) == before
    assert bench.home.profiles.find_build("local/mine", first.build_id) == first
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert await bench.home.profiles.remove_old_builds("local/mine", keep=[first.build_id]) == ()
    assert await bench.home.profiles.remove_old_builds() == (first.path,)
    assert sorted(path.name for path in second.path.parent.iterdir()) == [second.build_id]
    with pytest.raises(ProfileCompilationError, match="is gone") as caught, first.hold():
        pass
    assert caught.value.code == "build-gone"


async def test_builds_of_a_profile_that_sessions_use_are_kept(bench: Any) -> None:
    bench.write_profile()
    first = await bench.home.profiles.compile("local/mine")
    shipped = bench.tmp_path / "shipped"
    home = open_home(bench.home.paths.home, in_use=lambda profile_id: True, shipped_collection=shipped)
    bench.write_profile(body="Words.")

    await home.profiles.compile("local/mine")

    assert first.path.is_dir()


async def test_the_build_that_was_replaced_stays_until_the_next_one_is(bench: Any) -> None:
    builds = []
    for size in range(3):
        bench.write_profile(tools=[{"module": "tool-todo", "config": {"size": size}}])
        builds.append(await bench.home.profiles.compile("local/mine"))
        told = str(bench.home.plans.diff(builds[-2], builds[-1])) if size else ""
        assert told.startswith("~ tools: tool-todo") == bool(size)

    assert [build.path.is_dir() for build in builds] == [False, True, True]
    with pytest.raises(ProfileCompilationError, match="is gone") as caught:
        builds[0].plan()
    assert caught.value.code == "build-gone"


async def test_two_processes_that_compile_one_profile_do_the_work_once(
    bench: Any, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    bench.write_profile(tools=[{"module": "tool-own", "source": bench.write_module("tool-own")}])
    both = [start(COMPILE, bench.home.paths.home) for _ in range(2)]
    assert [ask(process) for process in both] == ["ready", "ready"]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    answers = [ask(process).split() for process in both]

    assert answers[0][0] == answers[1][0]
    assert sorted(count for _, count in answers) == ["0", "1"]


async def test_compiles_of_one_profile_wait_for_each_other_in_one_process(bench: Any) -> None:
    steps: list[ProgressEvent] = []
    home = open_home(bench.home.paths.home, progress=steps.append, shipped_collection=bench.tmp_path / "shipped")
    bench.write_profile(tools=[{"module": "tool-own", "source": bench.write_module("tool-own")}])

    builds = await asyncio.gather(*(home.profiles.compile("local/mine") for _ in range(5)))

    assert len(set(builds)) == 1
    assert [step.phase for step in steps if step.what == "profile" and step.phase != "waiting"] == ["fetching", "ready"]


async def test_two_builds_with_different_code_for_one_module_run_at_the_same_time(
    bench: Any, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    for name in ("one", "two"):
        package = {
            "amplifier_module_tool_own/__init__.py": TOOL.format(version=name),
            "amplifier_module_tool_own/words.py": f"WORD = 'of {name}'\n",
        }
        source = bench.write_module("tool-own", package, where=name)
        bench.write_profile(name, tools=[{"module": "tool-own", "source": source}])
    running = {name: start(RUN, bench.home.paths.home, f"local/{name}") for name in ("one", "two")}
    assert {name: ask(process, "go") for name, process in running.items()} == {
        "one": "one of one",
        "two": "two of two",
    }

    words = bench.tmp_path / "one/tool-own/amplifier_module_tool_own/words.py"
    words.write_text("WORD = 'of later'\n")
    await bench.home.profiles.compile("local/one")

    later = start(RUN, bench.home.paths.home, "local/one")
    assert ask(later, "go") == "one of later"
    assert ask(running["one"], "go") == "one of one"


async def test_a_new_text_is_published_without_touching_the_build_in_use(bench: Any) -> None:
    source = bench.write_module("tool-own")
    bench.write_profile(tools=[{"module": "tool-own", "source": source}])
    first = await bench.home.profiles.compile("local/mine")
    before = contents(first.path)
    text = bench.profile_text("mine", body="Words.", tools=[{"module": "tool-own", "source": source}])

    replace_profile_text(bench.home.paths, MINE, text)

    assert bench.home.paths.profile_file(MINE).read_text() == text
    assert contents(first.path) == before
    assert (await bench.home.profiles.status("local/mine")).codes == ("profile-changed",)
    second = await bench.home.profiles.compile("local/mine")
    assert {path.name for path in second.path.parent.iterdir()} == {first.build_id, second.build_id}


def test_a_new_profile_gets_a_plain_directory(bench: Any) -> None:
    replace_profile_text(bench.home.paths, MINE, "Words.")
    replace_profile_text(bench.home.paths, MINE, "More.")

    published = bench.home.paths.profile_dir(MINE)
    assert (published.is_symlink(), [path.name for path in published.iterdir()]) == (False, ["profile.md"])
    assert (published / "profile.md").read_text() == "More."


async def test_a_removed_profile_is_gone_at_once_and_its_build_with_the_last_holder(bench: Any) -> None:
    bench.write_profile()
    build = await bench.home.profiles.compile("local/mine")

    with build.hold():
        remove_profile(bench.home.paths, MINE)
        assert not bench.home.paths.profile_dir(MINE).exists()
        assert (build.path / "profile.lock").is_file()

    await bench.home.profiles.remove_old_builds()
    assert not build.path.exists()


async def test_a_deleted_build_is_made_again(bench: Any, new_repository: Callable[..., Any]) -> None:
    repository = new_repository("team", {"profiles/base.md": bench.profile_text("base")})
    await bench.home.collections.add("team", f"{repository.source}@main")
    build = await bench.home.profiles.compile("team/base")
    for path in bench.home.paths.profiles.glob("team/**/*"):
        path.unlink() if path.is_file() or path.is_symlink() else None

    again = await bench.reopen().profiles.compile("team/base")

    assert again.build_id == build.build_id
    assert json.loads((again.path / "profile.lock").read_text())["build_id"] == build.build_id


async def test_a_home_with_only_a_registry_reaches_a_build_and_keeps_it_without_cache_and_remote(
    bench: Any, new_repository: Callable[..., Any]
) -> None:
    text = bench.profile_text("base", agents="all", context={"docs": "../docs"})
    files = {"profiles/base.md": text, "agents/one.md": "One.\n", "docs/a.md": "A\n"}
    repository = new_repository("team", files | {"profiles/child.md": bench.profile_text("child", extends="base")})
    registry = bench.home.paths.collections_file
    bench.write_files(registry.parent, {registry.name: f"collections:\n  team: {repository.source}@main\n"})

    build = await bench.home.profiles.compile("team/child")
    shutil.rmtree(bench.home.paths.cache)
    shutil.move(repository.path, repository.path.with_name("unreachable"))

    assert await bench.reopen().profiles.compile("team/child") == build
    assert (await bench.home.profiles.status("team/child")).status == "fresh"
    assert (build.path / "agents/one.md").is_file()


async def test_profiles_of_a_disabled_collection_cannot_be_used(bench: Any, tmp_path: Path) -> None:
    bench.write_files(tmp_path / "team", {"profiles/base.md": bench.profile_text("base")})
    await bench.home.collections.add("team", str(tmp_path / "team"))
    await bench.home.collections.update("team", enabled=False)

    with pytest.raises(ProfileNotFoundError):
        await bench.home.profiles.compile("team/base")


async def test_a_profile_whose_directory_was_deleted_is_listed_and_comes_back(bench: Any, tmp_path: Path) -> None:
    bench.write_files(tmp_path / "team", {"profiles/base.md": bench.profile_text("base")})
    await bench.home.collections.add("team", str(tmp_path / "team"))
    shutil.rmtree(bench.home.paths.profiles / "team")

    (listed,) = bench.home.profiles.list()
    assert (str(listed.profile_id), listed.valid, listed.issues[0].code) == ("team/base", False, "profile-missing")

    await bench.home.profiles.compile("team/base")
    (listed,) = bench.home.profiles.list()
    assert (listed.valid, listed.is_compiled, listed.version) == (True, True, "1.0.0")
    assert listed.to_dict()["profile_id"] == "team/base"
