"""Blocking work off the event loop."""

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from itertools import count

import pytest

from amplifier_system.threads import ShortWork, Stop, Stopped, detached, in_thread


async def test_work_runs_in_another_thread_and_returns_or_raises() -> None:
    def fail(stop: Stop) -> None:
        raise ValueError("no")

    assert await in_thread(lambda stop: threading.current_thread()) is not threading.current_thread()
    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)


@pytest.mark.parametrize("patient", [True, False])
async def test_a_cancellation_stops_the_work_and_waits_until_it_has_ended(patient: bool) -> None:
    started, ended = threading.Event(), threading.Event()

    def work(stop: Stop) -> None:
        started.set()
        stop.wait(10)
        try:
            stop.check()
        except Stopped:
            ended.set()
            raise

    task = asyncio.create_task(in_thread(work, patient=patient))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("patient", [True, False])
async def test_only_patience_outlasts_a_second_cancellation(patient: bool) -> None:
    started, go_on = threading.Event(), threading.Event()

    def work(stop: Stop) -> None:
        started.set()
        go_on.wait(10)

    task = asyncio.create_task(in_thread(work, patient=patient))
    await asyncio.to_thread(started.wait, 10)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert task.done() is not patient
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_after_work_is_done_by_the_same_thread() -> None:
    threads = [await in_thread(lambda stop: threading.get_ident()) for _ in range(20)]

    assert len(set(threads)) <= 2  # one that comes to rest meanwhile may take over


async def test_more_work_than_there_are_threads_is_all_done() -> None:
    done = await asyncio.gather(*(in_thread(lambda stop, number=number: number) for number in range(500)))  # type: ignore[misc]

    assert done == list(range(500))


async def test_work_that_waits_for_other_work_never_waits_for_itself() -> None:
    def inner(stop: Stop) -> int:
        return 1

    done = await asyncio.gather(*(in_thread(lambda stop: asyncio.run(in_thread(inner))) for _ in range(100)))

    assert sum(done) == 100


LEFT = """
import asyncio, threading, time
from amplifier_system.threads import in_thread

async def main():
    started = threading.Event()

    def work(stop):
        started.set()
        stop.wait(10)
        time.sleep(0.1)
        print("done", flush=True)

    task = asyncio.create_task(in_thread(work, patient=False))
    await asyncio.to_thread(started.wait, 10)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    print("left", flush=True)

asyncio.run(main())
"""

FORKED = """
import asyncio, os
from amplifier_system.threads import in_thread

def said(text):
    asyncio.run(in_thread(lambda stop: print(text, flush=True)))

said("parent")
if (pid := os.fork()) == 0:
    said("child")
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(LEFT, ["left", "done"], id="a process ends when its work is done"),
        pytest.param(FORKED, ["parent", "child"], id="a forked process has threads of its own"),
    ],
)
def test_threads_belong_to_their_process(program: str, said: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert run.stdout.split() == said


_place: ContextVar[str] = ContextVar("_place", default="nowhere")


async def test_detached_work_has_a_thread_and_the_context_of_its_caller() -> None:
    _place.set("here")

    assert await detached("apart", lambda: (threading.current_thread().name, _place.get())) == ("apart", "here")
    with pytest.raises(ZeroDivisionError):
        await detached("apart", lambda: 1 / 0)


async def test_a_caller_that_is_cancelled_leaves_detached_work_behind() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.set()

    caller = asyncio.create_task(detached("apart", work))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert not ended.is_set()
    may_end.set()
    assert await asyncio.to_thread(ended.wait, 10)


def test_detached_work_does_not_keep_the_process_from_ending() -> None:
    program = """
import asyncio, threading
from amplifier_system.threads import detached
async def main():
    asyncio.create_task(detached("apart", threading.Event().wait))
    await asyncio.sleep(0.01)
asyncio.run(main())
"""

    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0


class Clock:
    """A clock that goes on only while work takes time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def is_on_the_loop(short: ShortWork, clock: Clock, takes_s: float, user: object = None) -> bool:
    def work(stop: Stop) -> threading.Thread:
        clock.now_s += takes_s
        return threading.current_thread()

    return await short.run(work, user) is threading.current_thread()


async def test_work_that_is_short_again_and_again_is_done_on_the_event_loop_until_it_takes_long() -> None:
    clock = Clock()
    short = ShortWork(looks_back=3, clock=clock)

    assert [await is_on_the_loop(short, clock, 0.0001) for _ in range(5)] == [False, False, False, True, True]
    assert await is_on_the_loop(short, clock, 0.1)
    assert [await is_on_the_loop(short, clock, 0.0001) for _ in range(4)] == [False, False, False, True]


async def test_one_user_alone_may_take_longer_on_the_event_loop_than_several() -> None:
    clock, one, other = Clock(), object(), object()
    short = ShortWork(looks_back=2, clock=clock)

    assert [await is_on_the_loop(short, clock, 0.01, one) for _ in range(3)] == [False, False, True]
    assert not await is_on_the_loop(short, clock, 0.01, other)
    assert [await is_on_the_loop(short, clock, 0.01, user) for user in (one, other, one)] == [False, False, False]
    clock.now_s += 1
    assert await is_on_the_loop(short, clock, 0.01, one)


async def test_much_short_work_lets_others_have_their_turn() -> None:
    clock, turns = Clock(), 0
    short = ShortWork(looks_back=1, clock=clock)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await is_on_the_loop(short, clock, 0.0004)
    before = turns
    assert all([await is_on_the_loop(short, clock, 0.0004) for _ in range(30)])
    task.cancel()

    assert turns - before >= 9


async def test_threads_that_end_while_others_ask_whether_work_is_short_disturb_no_one() -> None:
    slow, before = count(), sys.getswitchinterval()
    short = ShortWork(looks_back=500, clock=lambda: float(next(slow)))

    async def work() -> None:
        for _ in range(500):
            await short.run(lambda stop: None)

    sys.setswitchinterval(1e-6)
    try:
        await asyncio.gather(*(work() for _ in range(4)))
    finally:
        sys.setswitchinterval(before)

    assert not short.is_short()
