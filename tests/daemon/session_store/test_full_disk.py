"""A disk that is full, in a mount namespace: what cannot be written says so, and what was there is read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PREAMBLE = f"""
import asyncio, json, subprocess, sys
from contextlib import suppress
from pathlib import Path
sys.path.append({str(Path(__file__).parents[2] / "stand_ins")!r})
from stored_sessions import event, message, new_session
from amplifier_sessions.event_page import EventPlace
from amplifierd.paths import Paths
from amplifierd.problems import problem_document
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionQuery

me, home = Holder.of_this_process("test"), Path(sys.argv[1])

def open_store():
    return FileStore(Paths.from_environment(home, environ={{}}))
"""
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
STORE = f"""{PREAMBLE}
lack, room = sys.argv[2], {{"space": "size=1m", "inodes": "nr_inodes=100"}}
subprocess.run(["mount", "-t", "tmpfs", "-o", room[lack], "disk", home], check=True)

def fill():
    with suppress(OSError):
        for number in range(100):
            (home / f"filler{{number}}").touch()
            with (home / "filler0").open("ab", buffering=0) as file:
                while lack == "space" and file.write(bytes(4096)):
                    pass

async def refusal(write):
    try:
        await write
    except Exception as error:
        problem = problem_document(error)
        return [problem[name] for name in ("status", "code", "retryable", "error_class", "hint")]

async def main():
    store = open_store()
    hold = await store.create(new_session("s1", messages=[message("hello")], events=[event(1)]), me)
    fill()
    refused = [
        await refusal(store.create(new_session("s2"), me)),
        await refusal(store.update(hold, name="Another")),
        await refusal(store.put_document(hold, "context_messages", [])),
    ]
    if lack == "space":
        refused.append(await refusal(store.append_events(hold, [event(2, text="x" * 300_000)])))
        refused.append(await refusal(store.append_messages(hold, [message("x" * 300_000)], lasting=True)))
    page = await store.list(SessionQuery())
    read = [page.total, (await store.read_event_page("s1", EventPlace(9))).total, len(await store.read_messages("s1"))]
    for path in home.glob("filler*"):
        path.unlink()
    await store.append_events(hold, [event(2)])
    await store.update(hold, name="Another")
    read.append((await store.read("s1")).name)
    await store.close()
    print(json.dumps({{"refused": refused, "read": read}}))

asyncio.run(main())
"""
COMMAND = f"""{PREAMBLE}
async def main():
    store = open_store()
    await store.add(new_session("s1", name="Shopping"), me)
    await store.close()

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "disk", home], check=True)
asyncio.run(main())
for path in (home / "state").glob("index.db*"):
    path.unlink()
with (home / "filler").open("wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
command = [sys.executable, "-m", "amplifier_cli", "--home", str(home)]
listed = subprocess.run([*command, "session", "list"], cwd=home, capture_output=True, text=True)
renamed = subprocess.run([*command, "session", "rename", "s1", "Another"], cwd=home, capture_output=True, text=True)
print(listed.returncode, "Shopping" in listed.stdout, listed.stderr, renamed.returncode, "fix: " in renamed.stderr)
"""


def in_namespace(code: str, *arguments: str) -> str:
    """Run Python where mounts are its own; skipped where that cannot be had."""
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no user namespaces, so no small disk can be mounted")
    done = subprocess.run([*NAMESPACE, sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("lack", ["space", "inodes"])
def test_what_finds_no_room_is_refused_as_that_and_everything_is_still_read(tmp_path: Path, lack: str) -> None:
    said: dict[str, list[Any]] = json.loads(in_namespace(STORE, str(tmp_path), lack))

    for refused in said["refused"]:
        assert refused[:4] == [507, "store-full", True, "StoreFullError"], refused
        assert "room on its disk" in refused[4]
    assert said["read"] == [1, 1, 1, "Another"]


def test_a_list_succeeds_although_neither_its_index_nor_the_log_can_be_written(tmp_path: Path) -> None:
    assert in_namespace(COMMAND, str(tmp_path)) == "0 True  1 True\n"
