"""Killed in the middle, at every single step that changes a file: the next one goes on as if nothing had happened."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_python

PROGRAM = r'''
import asyncio, json, os, shutil, signal, sys
from concurrent.futures import thread
from pathlib import Path
from amplifierd.checkpoints import Checkpoints

sys.path.insert(0, sys.argv[3])
from conftest import picture

what, base, points = sys.argv[1], Path(sys.argv[2]), int(sys.argv[4])
prepared, scene = base / "prepared", base / "scene"
CHANGES = {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod", "os.truncate"}
state = {"count": 0, "last": None, "is_counting": False}


def watch(event, args):
    """Count what changes a file; at the last one there is no more."""
    if not state["is_counting"]:
        return
    is_write = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
    if event in CHANGES or is_write:
        state["count"] += 1
        if state["count"] == state["last"]:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(watch)


def checkpoints():
    return Checkpoints(scene / "state", scene / "work")


def reset():
    shutil.rmtree(scene, ignore_errors=True)
    shutil.copytree(prepared, scene, symlinks=True)


def change(work):
    (work / "edited").write_text("by the turn")
    (work / "script").chmod(0o755)
    (work / "gone").unlink()
    shutil.rmtree(work / "folder")
    (work / "folder").write_text("a file now")
    (work / "file").unlink()
    (work / "file" / "deep").mkdir(parents=True)
    (work / "file" / "deep" / "new").write_text("new")
    (work / "link").unlink()
    (work / "link").symlink_to("elsewhere")
    (work / "void").rmdir()
    (work / "mode").chmod(0o700)


async def prepare():
    work = prepared / "work"
    (work / "folder" / "inner").mkdir(parents=True)
    for name in ("edited", "script", "gone", "file", "folder/one", "folder/inner/two"):
        (work / name).write_text(f"{name} as it was")
    (work / "link").symlink_to("edited")
    (work / "void").mkdir()
    (work / "mode").mkdir(mode=0o755)
    own = Checkpoints(prepared / "state", work)
    start = picture(work)
    await own.take(1)
    change(work)
    if what == "undo":
        await own.take(1, label="after")
    return start, picture(work)


async def act():
    own = checkpoints()
    if what == "undo":
        before, after = own.list()[:2]
        return await own.undo(before, after)
    return await own.take(2)


def in_child(last):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        state.update(count=0, last=last, is_counting=True)
        asyncio.run(act())
        state["is_counting"] = False
        os.write(writer, str(state["count"]).encode())
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    answer = os.read(reader, 100)
    os.close(reader)
    return status, answer


async def examine(start, changed):
    """Go on after the crash; return what is wrong."""
    work = scene / "work"
    if what == "take":
        own = checkpoints()
        after = await own.take(2)
        changes = await own.changes(own.list()[0], after)
        undone = await own.undo(own.list()[0], after)
        return [
            *(["the tree was touched"] if changes.modified == () else []),
            *([] if undone.done and picture(work) == start else ["it cannot be undone"]),
        ]
    result = await act()
    if not result.done or result.foreign:
        return [f"not done: {result}"]
    if picture(work) != start:
        return ["not restored", repr(set(picture(work).items()) ^ set(start.items()))]
    back = await checkpoints().undo(result.before, result.after)
    return [] if back.done and picture(work) == changed else ["the undo cannot be undone"]


start, changed = asyncio.run(prepare())
reset()
_, answer = in_child(None)
total = int(answer)
wrong = {}
chosen = sorted({round(1 + index * (total - 1) / (points - 1)) for index in range(points)})
for last in chosen:
    reset()
    status, _ = in_child(last)
    problems = asyncio.run(examine(start, changed)) if os.WIFSIGNALED(status) else ["it was not killed"]
    if problems:
        wrong[last] = problems
print(json.dumps({"total": total, "tried": len(chosen), "wrong": wrong}))
'''


@pytest.mark.parametrize("what", ["take", "undo"])
def test_what_was_killed_in_the_middle_is_done_again(what: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, what, str(tmp_path), str(Path(__file__).parent), "12"]

    done = warm_python.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["wrong"] == {}
    assert report["tried"] > 5
