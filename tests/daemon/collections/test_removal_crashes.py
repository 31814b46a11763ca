"""A removal that is killed in the middle: what people wrote is untouched, and the next removal or sync finishes it."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import warm_python

from amplifierd import Home, open_home

STAND_INS = Path(__file__).parents[2] / "stand_ins"

PROGRAM = r'''
import asyncio, json, shutil, sys
from pathlib import Path
from authored_files import snapshot
from kill_points import count_changes, import_modules_of, kill_at, spread, succeeds
from amplifierd import open_home

prepared, work, shipped = map(Path, sys.argv[1:4])
authored_roots, what, points = [*map(Path, json.loads(sys.argv[4]))], sys.argv[5], int(sys.argv[6])
(work.parent / "facts").mkdir(exist_ok=True)


def opened():
    return open_home(work, shipped_collection=shipped, overrides={"startup": {"auto_compile": False}})


async def remove():
    home = opened()
    action, _, name = what.partition(" ")
    if action == "collection" and name in {each.identifier for each in home.collections.list()}:
        await home.collections.remove(name)
    elif action == "profile":
        await home.collections.sync([name.partition("/")[0]], refresh=False)
    elif action == "builds":
        await home.profiles.remove_old_builds(name)


async def look():
    """Note what can be seen of the home by one who opens it."""
    home = opened()
    plan = await home.plans.generate("local/mine")
    facts = {"plan": plan, "profiles": [str(each) for each in home.collections.profile_ids()]}
    (work.parent / "facts" / "seen").write_text(json.dumps(facts))


async def finish():
    await remove()
    await opened().collections.sync(refresh=False)
    await look()


def seen_after(act):
    path = work.parent / "facts" / "seen"
    path.unlink(missing_ok=True)
    return json.loads(path.read_text()) if succeeds(lambda: asyncio.run(act())) else None


def reset():
    """Make a home like the one that was prepared, with the same cache."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(prepared, work, symlinks=True, ignore=lambda path, names: {"cache"} & {*names})
    (work / "cache").symlink_to(prepared / "cache")


def authored():
    return snapshot(work / "config", *authored_roots)


def generated():
    """Return the directories of what was generated, by the names that stay the same."""
    root = work / "share" / "profiles"
    paths = (path.relative_to(root).parts for path in root.glob("*/*"))
    builds = (path.relative_to(root).parts for path in root.glob("*/.builds/*/*"))
    return sorted("/".join(parts) for parts in (*paths, *builds) if parts[-1] != ".builds")


reset()
import_modules_of(lambda: asyncio.run(finish()))
reset()
registry = work / "share" / "collections.yaml"
wrote, before, text_before = authored(), seen_after(look), registry.read_text()
after, left, text_after = seen_after(finish), generated(), registry.read_text()
reset()
for point in spread(count_changes(lambda: asyncio.run(remove())), points):
    reset()
    outcome = {"point": point, "killed": kill_at(point, lambda: asyncio.run(remove()))}
    outcome["untouched"] = authored() == wrote and registry.read_text() in (text_before, text_after)
    outcome["plan"] = (seen_after(look) or {}).get("plan") == before["plan"]
    outcome["finished"] = (seen_after(finish), registry.read_text()) == (after, text_after)
    outcome["still untouched"] = authored() == wrote
    outcome["left"] = generated()
    print(json.dumps(outcome))
print(json.dumps({"after": after["profiles"], "left": left}))
'''


class Removable(NamedTuple):
    """A home from which things can be removed, and the directories outside in which people wrote."""

    home: Home
    authored: tuple[Path, ...]


@pytest.fixture
async def removable(
    tmp_path: Path, new_repository: Callable[..., Any], shipped: Path, text: Callable[..., str]
) -> Removable:
    """Two collections, one of them a directory in which someone works, and profiles of one's own, all compiled."""
    code = "async def mount(coordinator, config=None):\n    return None\n"
    modules = new_repository("modules", {"amplifier_module_tool_x/__init__.py": code})
    tools = f"providers:\n- module: provider-mock\ntools:\n- module: tool-x\n  source: {modules.source}@main"
    team = new_repository("team", {f"profiles/{name}.md": text(name, extra=tools) for name in ("base", "extra")})
    desk = tmp_path / "desk"
    for name in ("plain", "gone"):
        (desk / "profiles" / name / ".git").mkdir(parents=True)
        (desk / "profiles" / name / "notes.txt").write_text("keep\n")
        (desk / "profiles" / f"{name}.md").write_text(text(name, extra=tools))
    home = open_home(tmp_path / "home", shipped_collection=shipped)
    own = home.paths.own_profiles
    for name in ("mine", "old"):
        (own / name / "empty").mkdir(parents=True)
        (own / name / ".venv").mkdir()
        (own / name / ".venv" / "pyvenv.cfg").write_text("home = /usr\n")
        (own / name / "profile.md").write_text(text(name, extends="team/base"))
    home.paths.share.mkdir(parents=True)
    home.paths.collections_file.write_text(
        f"# what we use\ncollections:\n  team: {team.source}@main  # the team's\n  desk: {desk}  # mine\n"
    )
    await home.collections.sync()
    (own / "mine" / "profile.md").write_text(text("mine", extends="team/base", body="Other words."))
    await home.profiles.compile("local/mine")
    for path in (desk / "profiles" / "gone.md", own / "old" / "profile.md"):
        path.unlink()
    return Removable(home, (desk, tmp_path / "remote"))


@pytest.mark.parametrize(
    ("what", "points", "left"),
    [
        ("collection team", 20, {"desk/plain", "local/mine"}),
        ("collection desk", 6, {"team/base", "team/extra", "local/mine"}),
        ("profile desk/gone", 20, {"team/base", "team/extra", "desk/plain", "local/mine"}),
        ("profile local/old", 6, {"team/base", "team/extra", "desk/plain", "local/mine"}),
        ("builds local/mine", 6, {"team/base", "team/extra", "desk/plain", "local/mine"}),
    ],
)
async def test_wherever_a_removal_is_killed(
    tmp_path: Path, removable: Removable, shipped: Path, what: str, points: int, left: set[str]
) -> None:
    places = json.dumps([str(path) for path in removable.authored])
    arguments = [removable.home.paths.home, tmp_path / "work", shipped, places, what, points]
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS)}
    done = await asyncio.to_thread(
        warm_python.run, command, capture_output=True, text=True, timeout=240, env=environment
    )

    assert done.returncode == 0, done.stderr
    *outcomes, overall = map(json.loads, done.stdout.splitlines())
    good = dict.fromkeys(("killed", "untouched", "plan", "finished", "still untouched"), True)
    assert outcomes == [{"point": outcome["point"], **good, "left": overall["left"]} for outcome in outcomes]
    assert len(outcomes) == points
    assert {*overall["after"]} - {"foundation/core"} == left
    assert {each for each in overall["left"] if ".builds" not in each} - {"foundation/core"} == left
