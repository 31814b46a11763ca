"""A sync that is killed in the middle: what was there before works, and the next sync needs no help."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amplifierd import Home, open_home

POINTS = 20

PROGRAM = r'''
import asyncio, json, os, shutil, signal, sys
from pathlib import Path
from amplifierd import open_home

CHANGES = {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod", "subprocess.Popen"}
prepared, work, shipped, points = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
state = {"count": 0, "last": None}


def watch(event, args):
    """Count what changes a file or starts a process; at the last one there is no more."""
    is_write = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
    if state["last"] is not None and (event in CHANGES or is_write):
        state["count"] += 1
        if state["count"] == state["last"]:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(watch)


def forked(act):
    """Run in a child and return how it ended."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def sync(last):
    def act():
        state["last"] = last
        asyncio.run(open_home(work, shipped_collection=shipped).collections.sync())
        if last == -1:
            (work.parent / "steps").write_text(str(state["count"]))
    return act


def look():
    async def main():
        home = open_home(work, shipped_collection=shipped, offline=True)
        plan = await home.plans.generate("team/base")
        (work.parent / "plan").write_text(json.dumps(plan["tools"][0]["config"]))
    asyncio.run(main())


def reset():
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(prepared, work, symlinks=True)
    (work.parent / "plan").unlink(missing_ok=True)


def seen():
    path = work.parent / "plan"
    found = json.loads(path.read_text()) if path.exists() else None
    path.unlink(missing_ok=True)
    return found


reset()
forked(sync(-1))
steps = int((work.parent / "steps").read_text())
outcomes = []
for number in range(points):
    reset()
    ended = forked(sync(1 + number * steps // points))
    forked(look)
    usable = seen()
    repaired = forked(sync(None)) == 0
    forked(look)
    outcomes.append({
        "killed": os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL,
        "usable": usable, "repaired": repaired, "after": seen(),
    })
print(json.dumps(outcomes))
'''


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
    home.paths.collections_file.write_text(f"collections:\n  team: {team.source}@main\n")
    await home.collections.sync()
    assert (await home.profiles.status("team/base")).status == "fresh"
    modules.commit({"amplifier_module_tool_x/__init__.py": code + "# newer\n"})
    team.commit({"profiles/base.md": profile(2)})

    command = [sys.executable, "-c", PROGRAM, home.paths.home, tmp_path / "work", shipped, str(POINTS)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert len(outcomes) == POINTS
    assert all(outcome["killed"] for outcome in outcomes)
    assert all(outcome["usable"] in ({"version": 1}, {"version": 2}) for outcome in outcomes), outcomes
    assert all(outcome["repaired"] and outcome["after"] == {"version": 2} for outcome in outcomes), outcomes
