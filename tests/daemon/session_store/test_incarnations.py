"""The daemon of a home takes what earlier daemons held at once, and what they left can write nothing any more."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import message, new_session

from amplifierd.exceptions import HoldLostError, HomeInUseError, SessionHeldError
from amplifierd.paths import Paths
from amplifierd.server.run_file import find_running, run_file, serving, write_run_file
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.process_locks import DAEMON_LOCK, read_incarnation

SERVING = """
import asyncio, os, socket, sys
from pathlib import Path
from typing import Any
from amplifierd.server.run_file import serving
from amplifierd.exceptions import HoldLostError
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder

if sys.argv[2] != "-":
    socket.sethostname(sys.argv[2])
paths = Paths.from_environment(Path(sys.argv[1]), environ={})

async def work(incarnation):
    store = FileStore(paths)
    store.belong_to(incarnation)
    hold = await store.acquire("s1", Holder.of_this_process("worker"))
    print("held", flush=True)
    sys.stdin.readline()
    try:
        await store.append_messages(hold, [{"id": "late"}])
    except HoldLostError:
        print("refused", flush=True)

with serving(paths) as incarnation:
    if os.fork() == 0:
        asyncio.run(work(incarnation))
        os._exit(0)
    os.kill(os.getpid(), 9)  # the daemon, but not its worker
"""
CONTAINER = ["unshare", "--user", "--map-root-user", "--uts", "--pid", "--fork", "--mount-proc"]


def _paths(home: Path) -> Paths:
    return Paths.from_environment(home, environ={})


def _me(kind: str = "daemon") -> Holder:
    return Holder.of_this_process(kind)


async def _stored(home: Path) -> None:
    store = FileStore(_paths(home))
    await store.release(await store.create(new_session("s1"), _me()))
    await store.close()


def _command(namespaces: bool) -> list[str]:
    if not namespaces:
        return []
    tried = subprocess.run([*CONTAINER, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespaces can be made here: {tried.stderr.decode().strip()}")
    # The first process of a container takes all others along; the daemon is its second one.
    return [*CONTAINER, "sh", "-c", '"$@"; wait; sleep 600', "sh"]


@contextmanager
def worker_of_a_dead_daemon(home: Path, *, namespaces: bool, host: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that holds a session and has outlived its daemon."""
    command = [*_command(namespaces), sys.executable, "-c", SERVING, str(home), host]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("namespaces", "host"),
    [(False, "-"), (True, "-"), (True, "another-host")],
    ids=["this machine", "a container of the same name", "a container of another name"],
)
async def test_the_next_daemon_takes_a_session_from_a_worker_that_lives(
    tmp_path: Path, namespaces: bool, host: str
) -> None:
    home = tmp_path / "home"
    await _stored(home)
    with worker_of_a_dead_daemon(home, namespaces=namespaces, host=host) as worker:
        command = FileStore(_paths(home))
        with pytest.raises(SessionHeldError):  # a command cannot know what became of the daemon
            await command.acquire("s1", _me("command"))

        with serving(_paths(home)) as incarnation:
            store = FileStore(_paths(home))
            store.serve_as(incarnation)
            assert await store.abandoned() == ["s1"]
            hold = await store.acquire("s1", _me())
            await store.append_messages(hold, [message("mine")])

            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("write\n")
            worker.stdin.flush()
            assert worker.stdout.readline() == "refused\n"
            assert [one["content"] for one in await store.read_messages("s1")] == ["mine"]
            await store.close()
        await command.close()


async def test_in_a_copy_of_a_home_the_daemon_takes_what_the_other_holds_and_the_other_keeps_it(tmp_path: Path) -> None:
    home, copied = tmp_path / "home", tmp_path / "copy"
    with serving(_paths(home)) as first:
        store = FileStore(_paths(home))
        store.serve_as(first)
        elsewhere = replace(_me("worker"), host="another-machine", lock=None)
        hold = await store.create(new_session("s1"), _me("worker"))
        await store.create(new_session("s2"), elsewhere)
        shutil.copytree(home, copied)

        with serving(_paths(copied)) as second:
            copy = FileStore(_paths(copied))
            copy.serve_as(second)
            assert (await copy.acquire("s1", _me())).epoch == 2
            assert (await copy.acquire("s2", _me())).epoch == 2
            await store.append_messages(hold, [message("still mine")])
            await copy.close()
        await store.close()


async def test_in_a_copy_of_a_home_that_another_machine_works_in_nothing_is_held(tmp_path: Path) -> None:
    home, copied = tmp_path / "home", tmp_path / "copy"
    await _stored(home)
    with worker_of_a_dead_daemon(home, namespaces=True, host="another-host"):
        shutil.copytree(home, copied)

        with serving(_paths(copied)) as incarnation:
            copy, command = FileStore(_paths(copied)), FileStore(_paths(copied))
            copy.serve_as(incarnation)
            assert await command.holder_of("s1") is None  # its lock is not locked here
            assert (await copy.acquire("s1", _me())).epoch == 3
            await copy.close()
            await command.close()


async def test_what_an_earlier_version_holds_is_not_taken_while_it_lives(tmp_path: Path) -> None:
    """It wrote neither a lock nor an incarnation."""
    with serving(_paths(tmp_path)) as incarnation:
        old, store = FileStore(_paths(tmp_path)), FileStore(_paths(tmp_path))
        store.serve_as(incarnation)
        hold = await old.create(new_session("s1"), replace(_me(), host="another-machine"))
        written = store.workspace("s1") / "hold.json"
        assert '"lock": null' in written.read_text()

        with pytest.raises(SessionHeldError):
            await store.acquire("s1", _me())
        assert (await store.acquire("s1", _me(), take_over=True)).epoch == hold.epoch + 1
        with pytest.raises(HoldLostError):
            await old.append_messages(hold, [message("late")])
        await store.close()
        await old.close()


async def test_a_worker_of_an_earlier_daemon_takes_nothing_from_the_present_one(tmp_path: Path) -> None:
    with serving(_paths(tmp_path)) as earlier:
        pass
    with serving(_paths(tmp_path)) as present:
        old, store = FileStore(_paths(tmp_path)), FileStore(_paths(tmp_path))
        old.belong_to(earlier)
        store.serve_as(present)
        await store.create(new_session("s1"), _me())
        with pytest.raises(SessionHeldError):
            await old.acquire("s1", _me("worker"))
        await store.close()
        await old.close()


def test_a_home_has_one_daemon_and_each_has_an_incarnation_of_its_own(tmp_path: Path) -> None:
    paths, seen = _paths(tmp_path), list[str]()
    for _ in range(3):
        with serving(paths) as incarnation:
            seen.append(incarnation)
            assert read_incarnation(paths.run / DAEMON_LOCK) == incarnation
            with pytest.raises(HomeInUseError), serving(paths):
                pass
    assert [int(one.partition("-")[0]) for one in seen] == [1, 2, 3]
    assert len({one.partition("-")[2] for one in seen}) == 3
    assert find_running(paths) is None


def test_a_daemon_is_not_looked_for_where_one_listened_that_was_killed(tmp_path: Path) -> None:
    paths = _paths(tmp_path)
    address: Any = {"host": "127.0.0.1", "port": 1, "url": "http://127.0.0.1:1", "uds": None}
    with serving(paths):
        written = write_run_file(paths, boot_id="b", version="v", **address)
        assert find_running(paths) == written
        left = run_file(paths).read_bytes()
    run_file(paths).write_bytes(left)

    with serving(paths):
        assert find_running(paths) is None


def test_a_process_that_a_daemon_forked_does_not_keep_its_lock(tmp_path: Path) -> None:
    paths = _paths(tmp_path)
    with serving(paths):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with serving(paths):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
