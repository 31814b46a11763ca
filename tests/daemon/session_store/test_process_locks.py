"""A session whose process is gone is free at once, wherever and under whatever name that process ran."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from stored_sessions import new_session

from amplifierd.exceptions import SessionError, SessionHeldError, StoreFullError
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

HOLDING = """
import asyncio, socket, sys
from pathlib import Path
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

if len(sys.argv) > 2:
    socket.sethostname(sys.argv[2])

async def main():
    store = FileStore(Paths.from_environment(Path(sys.argv[1]), environ={}))
    await store.acquire("s1", Holder.of_this_process("worker"))
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
CONTAINER = ["unshare", "--user", "--map-root-user", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    store = FileStore(_paths(tmp_path / "home"))
    yield store
    await store.close()


def _me() -> Holder:
    return Holder.of_this_process("test")


def _paths(home: Path) -> Paths:
    return Paths.from_environment(home, environ={})


async def _stored(store: FileStore) -> None:
    await store.release(await store.create(new_session("s1"), _me()))


def _hold_elsewhere(command: list[str], home: Path, *arguments: str) -> subprocess.Popen[str]:
    program = [*command, sys.executable, "-c", HOLDING, str(home), *arguments]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _requires_containers() -> None:
    tried = subprocess.run([*CONTAINER, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces can be made here: {tried.stderr.decode().strip()}")


@pytest.mark.parametrize("host", ["another-host", None], ids=["another host name", "the same host name"])
async def test_a_session_is_free_when_the_container_that_held_it_was_killed(
    store: FileStore, tmp_path: Path, host: str | None
) -> None:
    _requires_containers()
    await _stored(store)
    container = _hold_elsewhere(CONTAINER, tmp_path / "home", *([host] if host else []))
    try:
        with pytest.raises(SessionHeldError):
            await store.acquire("s1", _me())
    finally:
        _kill(container)

    async with asyncio.timeout(10):  # for its first process, which ends after the one that was waited for
        while await store.holder_of("s1") is not None:  # noqa: ASYNC110 - the kernel frees the lock without a word
            await asyncio.sleep(0.01)
    assert await store.abandoned() == ["s1"]
    assert (await store.acquire("s1", _me())).epoch == 3


async def test_in_a_copy_of_a_home_nothing_is_held(store: FileStore, tmp_path: Path) -> None:
    await store.create(new_session("s1"), replace(_me(), host="another-machine", lock="0" * 32))
    held = await store.create(new_session("s2"), _me())
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    copy = FileStore(_paths(tmp_path / "copy"))

    assert (await copy.acquire("s1", _me())).epoch == 2
    assert (await copy.acquire("s2", _me())).epoch == 2
    assert await store.holder_of("s2") == held
    await copy.close()


async def test_a_process_that_lives_keeps_its_session_although_its_id_means_another_one_here(
    store: FileStore, tmp_path: Path
) -> None:
    _requires_containers()
    await _stored(store)
    container = _hold_elsewhere(CONTAINER, tmp_path / "home")
    try:
        found = await store.holder_of("s1")
        assert found is not None
        assert found.holder.kind == "worker"
        assert (await store.acquire("s1", _me(), take_over=True)).epoch == 3
    finally:
        _kill(container)


async def test_a_hold_without_a_lock_is_judged_by_its_process(store: FileStore) -> None:
    gone = replace(_me(), pid=2**22 + 1, started=1.0)
    await store.create(new_session("s1"), gone)
    elsewhere = replace(_me(), host="another-machine")
    await store.create(new_session("s2"), elsewhere)

    assert (await store.acquire("s1", _me())).epoch == 2
    with pytest.raises(SessionHeldError):
        await store.acquire("s2", _me())


async def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    home = tmp_path / "other"
    left = _paths(home).run / "holders" / ("f" * 32)
    left.parent.mkdir(parents=True)
    left.touch()
    store = FileStore(_paths(home))

    await store.create(new_session("s1"), _me())

    assert not left.exists()
    assert len(list(left.parent.iterdir())) == 1
    await store.close()


@pytest.mark.parametrize(
    ("refused", "told"), [(errno.ENOLCK, r"cannot be locked.*\n.*file system with locks"), (errno.ENOSPC, "make room")]
)
async def test_no_session_is_held_where_nothing_shows_that_its_process_lives(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int, told: str
) -> None:
    await store.add(new_session("s1"), _me())
    lock = fcntl.flock

    def refuse(file: int, how: int) -> None:
        if "holders" in str(Path(f"/proc/self/fd/{file}").readlink()):
            raise OSError(refused, os.strerror(refused))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", refuse)
    for holding in (store.acquire("s1", _me()), store.create(new_session("s2"), _me())):
        with pytest.raises(StoreFullError if refused == errno.ENOSPC else SessionError) as raised:
            await holding
        assert re.search(told, f"{raised.value.message}\n{raised.value.hint}")

    assert (await store.read("s1")).session_id == "s1"
    assert await store.existing(["s2"]) == set()
    monkeypatch.undo()
    await store.release(await store.acquire("s1", _me()))
