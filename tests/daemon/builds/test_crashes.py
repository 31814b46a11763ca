"""A compile that is killed in the middle: what was there before works, and the next compile needs no help."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_python

STAND_INS = Path(__file__).parents[2] / "stand_ins"

PROGRAM = r"""
import asyncio, json, shutil, sys
from pathlib import Path
from authored_files import snapshot
from kill_points import count_changes, kill_at, spread
from amplifier_foundation.sources import hash_content
from amplifierd import open_home

prepared, work, shipped, points = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
home = open_home(work, shipped_collection=shipped)


def reset():
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(prepared, work, symlinks=True)


def compile():
    return asyncio.run(home.profiles.compile("local/mine"))


def is_whole(build):
    entries = [entry for _, entry in build.lock.resources() if entry["path"]] if build is not None else []
    paths = [(build.path / entry["path"], entry["content_hash"]) for entry in entries]
    return bool(paths) and all(path.exists() and hash_content(path) == expected for path, expected in paths)


reset()
compile()  # so that everything is imported
reset()
before = home.profiles.find_build("local/mine")
path = home.paths.own_profiles / "mine" / "profile.md"
text = path.read_text()
authored = snapshot(home.paths.config)
total = count_changes(compile)
expected = home.profiles.find_build("local/mine").build_id
for point in spread(total, points):
    reset()
    killed = kill_at(point, compile)
    after = home.profiles.find_build("local/mine")
    usable = is_whole(after) or (before is None and after is None)
    repaired = compile()
    status = asyncio.run(home.profiles.verify("local/mine"))
    untouched = snapshot(home.paths.config) == authored
    path.write_text(path.read_text() + "More words.\n")
    last = compile()
    print(json.dumps({
        "point": point,
        "killed": killed,
        "usable": usable,
        "untouched": untouched,
        "text": path.read_text() == text + "More words.\n",
        "repaired": repaired.build_id == expected,
        "status": status.status,
        "left": {entry.name for entry in last.path.parent.iterdir()} == {repaired.path.name, last.path.name},
    }))
"""


@pytest.mark.parametrize(
    ("compiled_before", "points"), [(False, 8), (True, 20)], ids=["the first compile", "a later compile"]
)
async def test_wherever_it_is_killed(bench: Any, compiled_before: bool, points: int) -> None:
    source = bench.write_module("tool-own")
    agent = bench.tmp_path / "agent.md"
    agent.write_text("An agent.\n")
    sections = {"tools": [{"module": "tool-own", "source": source}], "agents": {"one": str(agent)}}
    own = bench.write_profile(**sections).parent
    bench.write_files(own, {".git/HEAD": "ref: refs/heads/main\n", ".venv/pyvenv.cfg": "", "notes.txt": "keep\n"})
    (own / "empty").mkdir()
    if compiled_before:
        await bench.home.profiles.compile("local/mine")
        bench.write_profile(**sections, body="Words.\n")
        (Path(source) / "amplifier_module_tool_own/more.py").write_text("x = 1\n")

    arguments = [bench.home.paths.home, bench.tmp_path / "work", bench.tmp_path / "shipped", points]
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS)}
    done = await asyncio.to_thread(
        warm_python.run, command, capture_output=True, text=True, timeout=120, env=environment
    )

    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    good = {
        "killed": True,
        "usable": True,
        "untouched": True,
        "text": True,
        "repaired": True,
        "status": "fresh",
        "left": True,
    }
    assert len(outcomes) == points
    assert outcomes == [{"point": outcome["point"], "status": "fresh", **good} for outcome in outcomes]


async def test_a_directory_that_was_put_aside_is_put_back(bench: Any) -> None:
    path = bench.write_profile(body="My only words.\n")
    builds = bench.home.paths.profiles / "local/.builds/mine"
    bench.home.profiles.get("local/mine")
    builds.mkdir(parents=True)
    bench.home.paths.profile_dir("local/mine").rename(builds / ".parked")

    build = await bench.home.profiles.compile("local/mine")

    assert path.read_text().endswith("My only words.\n")
    assert sorted(entry.name for entry in builds.iterdir()) == [build.build_id]
