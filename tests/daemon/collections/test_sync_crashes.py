"""A sync that is killed in the middle: what was there before works, what people wrote is untouched, and the next sync
needs no help."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import warm_python

from amplifierd import Home, open_home

STAND_INS = Path(__file__).parents[2] / "stand_ins"
POINTS = 20

PROGRAM = r"""
import asyncio, json, shutil, sys
from pathlib import Path
from authored_files import snapshot
from kill_points import count_changes, import_modules_of, kill_at, spread, succeeds
from amplifierd import open_home

prepared, work, shipped, points = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
plan = work.parent / "plan"


def sync():
    asyncio.run(open_home(work, shipped_collection=shipped).collections.sync())


def look():
    home = open_home(work, shipped_collection=shipped, offline=True)
    found = asyncio.run(home.plans.generate("team/base"))
    plan.write_text(json.dumps(found["tools"][0]["config"]))


def seen():
    plan.unlink(missing_ok=True)
    return json.loads(plan.read_text()) if succeeds(look) else None


def reset():
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(prepared, work, symlinks=True)


def authored():
    return snapshot(work / "config"), (work / "share" / "collections.yaml").read_text()


reset()
wrote = authored()
import_modules_of(sync)
import_modules_of(look)
reset()
outcomes = []
for point in spread(count_changes(sync), points):
    reset()
    killed = kill_at(point, sync)
    outcome = {"killed": killed, "untouched": authored() == wrote, "usable": seen()}
    outcome |= {"repaired": succeeds(sync), "still untouched": authored() == wrote, "after": seen()}
    outcomes.append(outcome)
print(json.dumps(outcomes))
"""


async def test_wherever_a_sync_is_killed(
    tmp_path: Path, new_repository: Callable[..., Any], shipped: Path, text: Callable[..., str]
) -> None:
    code = "async def mount(coordinator, config=None):\n    return None\n"
    modules = new_repository("modules", {"amplifier_module_tool_x/__init__.py": code})

    def profile(version: int) -> str:
        tool = f"- module: tool-x\n  source: {modules.source}@main\n  config: {{version: {version}}}"
        return text("base", extra=f"providers:\n- module: provider-mock\ntools:\n{tool}")

    team = new_repository("team", {"profiles/base.md": profile(1)})
    home: Home = open_home(tmp_path / "home", shipped_collection=shipped)
    home.paths.share.mkdir(parents=True)
    home.paths.collections_file.write_text(f"# ours\ncollections:\n  team: {team.source}@main\n")
    own = home.paths.own_profiles / "mine"
    for folder in (own / ".git", own / "empty"):
        folder.mkdir(parents=True)
    (own / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "profile.md").write_text(text("mine", extends="team/base"))
    await home.collections.sync()
    assert (await home.profiles.status("team/base")).status == "fresh"
    modules.commit({"amplifier_module_tool_x/__init__.py": code + "# newer\n"})
    team.commit({"profiles/base.md": profile(2)})

    command = [sys.executable, "-c", PROGRAM, home.paths.home, tmp_path / "work", shipped, str(POINTS)]
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS)}
    done = await asyncio.to_thread(
        warm_python.run, command, capture_output=True, text=True, timeout=240, env=environment
    )

    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert len(outcomes) == POINTS
    assert all(outcome["killed"] for outcome in outcomes)
    assert all(outcome["untouched"] and outcome["still untouched"] for outcome in outcomes), outcomes
    assert all(outcome["usable"] in ({"version": 1}, {"version": 2}) for outcome in outcomes), outcomes
    assert all(outcome["repaired"] and outcome["after"] == {"version": 2} for outcome in outcomes), outcomes
