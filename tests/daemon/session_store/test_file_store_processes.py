"""Several processes on one home and on one session, of which some are stopped and some are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from stored_sessions import message, new_session

from amplifierd.exceptions import HoldLostError, SessionHeldError
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionQuery

StartPython = Callable[..., Any]


@pytest.fixture
def store(file_store: FileStore) -> FileStore:
    return file_store


def wait_until_stopped(process: Any) -> None:
    ps = ["ps", "-o", "stat=", "-p", str(process.pid)]
    while not subprocess.run(ps, capture_output=True, text=True, check=True).stdout.startswith("T"):
        time.sleep(0.005)


CONTENDING = """
async def contend(begin):
    me = Holder.of_this_process("child")
    store = open_store()
    os.read(begin, 1)
    try:
        hold = await store.acquire("s1", me)
    except SessionHeldError as error:
        answer = ["held by", error.holder.pid]
    else:
        answer = ["holds", hold.epoch]
        for number in range(200):
            await store.append_messages(hold, [message(f"{os.getpid()} {number}", number)])
    say(json.dumps([os.getpid(), *answer]))
    signal.pause()

begin, start = os.pipe()
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        asyncio.run(contend(begin))
os.write(start, b"x" * 5)
sys.stdin.readline()
os.killpg(0, signal.SIGKILL)
"""


@pytest.mark.parametrize("count", [2, 5])
async def test_of_several_processes_one_holds_a_session_and_the_others_are_told_which(
    store: FileStore, paths: Paths, me: Holder, start_python: StartPython, count: int
) -> None:
    await store.release(await store.create(new_session("s1"), me))
    processes = start_python(CONTENDING, paths.home, count)

    answers = [json.loads(processes.stdout.readline()) for _ in range(count)]

    [winner] = [pid for pid, word, _ in answers if word == "holds"]
    assert [told for pid, _, told in answers if pid != winner] == [winner] * (count - 1)
    found = await store.holder_of("s1")
    assert found is not None
    assert (found.holder.pid, found.holder.kind) == (winner, "child")
    with pytest.raises(SessionHeldError, match=str(winner)):
        await store.acquire("s1", me)
    assert len(await store.read_messages("s1")) == 200
    os.kill(winner, signal.SIGKILL)
    while await store.holder_of("s1") is not None:
        os.sched_yield()
    assert (await store.acquire("s1", me)).epoch == 3


CREATING = """
async def create():
    store = open_store()
    me = Holder.of_this_process("child")
    for number in range(20):
        hold = await store.create(new_session(f"s{os.getpid()}-{number}", messages=[message("hello")]), me)
        await store.update(hold, name=f"name {number}")
    await store.close()
    os._exit(0)

children = [os.fork() or asyncio.run(create()) for _ in range(5)]
for child in children:
    os.waitpid(child, 0)
"""


async def test_five_processes_fill_one_home_and_one_index(
    store: FileStore, paths: Paths, start_python: StartPython
) -> None:
    start_python(CREATING, paths.home).communicate(timeout=60)

    page = await store.list(SessionQuery(limit=200))
    assert (len(page.sessions), page.total) == (100, 100)
    assert {record.revision for record in page.sessions} == {1}
    assert len(await store.search("hello", limit=200)) == 100
    assert len(await store.search("name 7", limit=200)) == 5


WRITING = """
async def main():
    store = open_store()
    hold = await store.acquire("s1", me)
    say("holds")
    number = 0
    while True:
        try:
            await store.append_messages(hold, [message(f"child {number} " + "x" * 3000, number)])
            await store.append_events(hold, [event(number)])
            if number % 10 == 0:
                await store.update(hold, turn_count=number)
        except HoldLostError:
            say("refused")
            break
        number += 1
    for attempt in (store.update(hold, name="mine"), store.replace_messages(hold, []), store.delete(hold)):
        try:
            await attempt
        except HoldLostError:
            say("refused")
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("moment", [0, 3])
async def test_a_process_that_was_stopped_and_taken_over_can_write_nothing_when_it_goes_on(
    store: FileStore, paths: Paths, me: Holder, start_python: StartPython, moment: int
) -> None:
    await store.release(await store.create(new_session("s1"), me))
    process = start_python(WRITING, paths.home)
    assert process.stdout.readline() == "holds\n"
    transcript = paths.sessions / "s1/transcript.jsonl"
    while transcript.stat().st_size < 10_000 * moment:
        os.sched_yield()

    hold = None
    while hold is None:
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process)
        with pytest.raises(SessionHeldError, match=str(process.pid)):
            await store.acquire("s1", me)
        try:
            hold = await store.acquire("s1", me, take_over=True)
        except SessionHeldError:  # it was stopped inside the gate; a later test is about that
            process.send_signal(signal.SIGCONT)
    before = await store.read_messages("s1")
    await store.append_messages(hold, [message("ours 1")])
    process.send_signal(signal.SIGCONT)
    await store.append_messages(hold, [message("ours 2")])
    output, _ = process.communicate(timeout=60)
    await store.append_messages(hold, [message("ours 3")])

    assert output.splitlines() == ["refused"] * 4
    messages = await store.read_messages("s1")
    assert [entry["content"] for entry in messages[len(before) :]] == ["ours 1", "ours 2", "ours 3"]
    assert [entry["turn"] for entry in before] == list(range(len(before)))
    lines = transcript.read_bytes().split(b"\n")[:-1]
    assert len([json.loads(line) for line in lines]) == len(messages)
    assert (await store.read("s1")).name is None


STOPPED_IN_THE_GATE = """
import fcntl, os, signal, sys
gate = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(gate, fcntl.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
fcntl.flock(gate, fcntl.LOCK_UN)
sys.stdin.readline()
"""


async def test_a_process_stopped_inside_the_gate_is_named_with_the_way_to_end_it(
    store: FileStore, paths: Paths, me: Holder, start_python: StartPython
) -> None:
    hold = await store.create(new_session("s1"), me)
    await store.append_messages(hold, [message("a")])
    process = start_python(STOPPED_IN_THE_GATE, paths.sessions / "s1/gate", bare=True)
    assert process.stdout.readline() == "locked\n"
    wait_until_stopped(process)

    with pytest.raises(SessionHeldError, match=f"kill -9 {process.pid}"):
        await store.acquire("s1", me, take_over=True)
    with pytest.raises(SessionHeldError, match=f"process {process.pid} has had"):
        await store.append_messages(hold, [message("b")])
    assert len(await store.read_messages("s1")) == 1

    process.kill()
    process.wait()
    await store.append_messages(hold, [message("c")])
    lost = hold
    hold = await store.acquire("s1", me, take_over=True)
    with pytest.raises(HoldLostError):
        await store.append_messages(lost, [message("d")])
    assert [entry["content"] for entry in await store.read_messages("s1")] == ["a", "c"]


async def test_a_gate_that_is_free_again_soon_is_waited_for(
    store: FileStore, paths: Paths, me: Holder, start_python: StartPython
) -> None:
    hold = await store.create(new_session("s1"), me)
    process = start_python(STOPPED_IN_THE_GATE, paths.sessions / "s1/gate", bare=True)
    assert process.stdout.readline() == "locked\n"
    wait_until_stopped(process)
    process.send_signal(signal.SIGCONT)

    await store.append_messages(hold, [message("a")])

    assert len(await store.read_messages("s1")) == 1


async def test_while_another_process_has_the_gate_the_event_loop_goes_on_however_quick_the_disk_is(
    store: FileStore, paths: Paths, me: Holder, start_python: StartPython
) -> None:
    hold = await store.create(new_session("s1"), me)
    for number in range(20):  # so that the disk counts as quick
        await store.append_messages(hold, [message(str(number))], lasting=True)
    process = start_python(STOPPED_IN_THE_GATE, paths.sessions / "s1/gate", bare=True)
    assert process.stdout.readline() == "locked\n"
    wait_until_stopped(process)

    updating = asyncio.create_task(store.update(hold, name="New"))
    for _ in range(20):  # which would not come to its end
        await asyncio.sleep(0.005)
    assert not updating.done()
    process.send_signal(signal.SIGCONT)

    assert (await updating).name == "New"
