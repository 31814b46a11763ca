"""Ending everything that a child process started, and nothing else."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from interruptions import cancelled_everywhere
from processes import Started, leaving_nothing

from amplifier_core.testing import wait_for
from amplifier_system.process_table import GroupMembers, MarkedMembers
from amplifier_system.processes import MARKER_PREFIX, ProcessTree, reading

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing but the process group can be seen")

# Each ends up with so many living processes.
TREES = {
    "one process": ("exec sleep 60", 1),
    "children": ("sleep 60 & sleep 60 & wait", 3),
    "a pipeline": ("sleep 60 | sleep 60", 3),
    "a child in a session of its own": ("setsid sleep 60 & wait", 2),
    "a child that ignores hangups": ("nohup sleep 60 >/dev/null 2>&1 & wait", 2),
    "a child that is nobody's": ("(setsid sleep 60 &) ; exec sleep 60", 2),
    "a child forked twice": ("setsid bash -c 'setsid sleep 60 & exit' & wait; exec sleep 60", 2),
    "a child in another group": ("set -m; sleep 60 & wait", 2),
    "a child without the environment": ("env -i sleep 60 & wait", 2),
    "a child that refuses to stop": ("trap '' TERM; sleep 60 & sleep 60; wait", 3),
    "a stopped child": ("sleep 60 & kill -STOP $!; wait", 2),
    "nothing but orphans": ("(setsid sleep 60 &); (sleep 60 &); exit 0", 2),
}


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    with leaving_nothing(monkeypatch) as started:
        yield started


async def start(script: str, **options: Any) -> ProcessTree:
    options = {"environment": dict(os.environ), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    return await ProcessTree.start(["bash", "-c", script], **options)


async def start_and_wait_for(script: str, count: int) -> ProcessTree:
    tree = await start(script)
    async with asyncio.timeout(10):
        while len(await tree.find_pids()) != count:  # noqa: ASYNC110 - processes tell nobody that they have begun
            await asyncio.sleep(0.01)
    return tree


def is_alive(pid: int) -> bool:
    """Say whether there is such a process, even a dead one that nobody reaped."""
    return Path(f"/proc/{pid}").exists()


@contextmanager
def stranger(script: str = "exec sleep 60") -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own session that belongs to no tree."""
    with subprocess.Popen(["bash", "-c", script], start_new_session=True) as process:
        yield process
        process.kill()


async def output_of(tree: ProcessTree) -> str:
    assert tree.stdout is not None
    with tree.stdout as pipe:
        return (await asyncio.to_thread(pipe.read)).decode()


@pytest.mark.parametrize(("script", "count"), TREES.values(), ids=TREES)
async def test_ending_a_tree_leaves_nothing_of_it(script: str, count: int) -> None:
    tree = await start_and_wait_for(script, count)

    await tree.end(0.1)

    assert await tree.find_pids() == []
    assert tree.returncode is not None


# Every process starts the next one and exits, so none is there for long; after three seconds nothing more is started.
CHAIN = """
import os, sys, time
heart, leaves_group, pause_s = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), sys.argv[2] == "True", float(sys.argv[3])
end_s = time.monotonic() + 3
while time.monotonic() < end_s:
    if os.fork():
        os._exit(0)
    if leaves_group:
        os.setsid()
    os.pwrite(heart, b"%20d" % time.monotonic_ns(), 0)
    time.sleep(pause_s)
"""


@pytest.mark.parametrize("ending", ["end", "kill"])
@pytest.mark.parametrize("pause_s", [0, 0.002])
@pytest.mark.parametrize("leaves_group", [False, True])
async def test_a_chain_of_processes_that_fork_and_exit_is_ended(
    tmp_path: Path, leaves_group: bool, pause_s: float, ending: str
) -> None:
    heart = tmp_path / "heart"
    arguments = [sys.executable, "-S", "-c", CHAIN, str(heart), str(leaves_group), str(pause_s)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    tree = await ProcessTree.start(arguments, environment=dict(os.environ), **quiet)
    assert await wait_for(lambda: heart.exists() and heart.stat().st_size > 0, timeout=30)

    await (tree.end(0) if ending == "end" else tree.kill())

    ended_ns = time.monotonic_ns()
    await asyncio.sleep(0.05)  # what has survived would show itself
    assert int(heart.read_text()) < ended_ns


@pytest.mark.parametrize(("script", "count"), TREES.values(), ids=TREES)
async def test_killing_a_tree_leaves_nothing_of_it(script: str, count: int) -> None:
    tree = await start_and_wait_for(script, count)

    await tree.kill()

    assert await tree.find_pids() == []
    assert tree.returncode is not None


async def test_a_tree_that_is_killed_is_not_asked() -> None:
    tree = await start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done", stdout=subprocess.PIPE)
    assert tree.stdout is not None
    await asyncio.to_thread(tree.stdout.readline)

    await tree.kill()

    tree.stdout.close()
    assert tree.returncode == -9


async def test_a_child_is_asked_to_stop_before_it_is_killed() -> None:
    tree = await start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done", stdout=subprocess.PIPE)
    assert tree.stdout is not None
    await asyncio.to_thread(tree.stdout.readline)

    await tree.end(5)

    tree.stdout.close()
    assert tree.returncode == 7


async def test_a_child_that_ends_is_reaped_though_nobody_waits() -> None:
    tree = await start("exit 3")

    assert await wait_for(lambda: tree.returncode is not None, timeout=30)

    assert not is_alive(tree.pid)
    assert await tree.wait() == 3


async def test_a_child_gets_the_environment_it_is_given_and_the_markers() -> None:
    os.environ["SECRET_OF_THE_HOST"] = "x"
    try:
        tree = await start("env", environment={"PATH": os.environ["PATH"], "A": "1"}, stdout=subprocess.PIPE)
    finally:
        del os.environ["SECRET_OF_THE_HOST"]

    variables = dict(line.split("=", 1) for line in (await output_of(tree)).splitlines())
    await tree.wait()
    markers = {name for name in variables if name.startswith(MARKER_PREFIX)}

    assert markers == {tree.marker, *(name for name in os.environ if name.startswith(MARKER_PREFIX))}
    assert len(tree.marker) == len(MARKER_PREFIX) + 32
    assert variables["A"] == "1"
    assert "SECRET_OF_THE_HOST" not in variables


async def test_a_child_leads_a_session_and_has_no_input() -> None:
    tree = await start("cat; cut -d' ' -f1,5,6 /proc/$$/stat", stdout=subprocess.PIPE)

    assert set((await output_of(tree)).split()) == {str(tree.pid)}
    await tree.wait()


async def test_an_outer_tree_holds_the_inner_ones(started: Started) -> None:
    inner = (
        "import asyncio, os\n"
        "from amplifier_system.processes import ProcessTree\n"
        "async def main():\n"
        "    await ProcessTree.start(['setsid', 'sleep', '60'], environment={'PATH': os.environ['PATH']})\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    outer = await ProcessTree.start(
        [sys.executable, "-c", inner],
        environment={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    await asyncio.to_thread(started.wait_for, 2)

    await outer.end(0.1)

    assert started.pids() == []


async def test_strangers_are_left_alone(started: Started) -> None:
    with stranger() as other:
        tree = await start("sleep 60")

        await tree.end(0)

        assert started.pids() == [other.pid]


@pytest.mark.parametrize("members", [MarkedMembers, GroupMembers])
async def test_a_group_whose_number_somebody_else_has_by_now_is_left_alone(members: Any) -> None:
    with stranger() as other:
        reused = members(other.pid, f"{MARKER_PREFIX}none", lambda: True)
        own = members(other.pid, f"{MARKER_PREFIX}none", lambda: False)

        assert (reused.find(), reused.signal(9), own.find()) == ([], [], [other.pid])
        assert other.poll() is None


async def test_where_no_environment_can_be_seen_the_group_is_signalled(started: Started) -> None:
    with stranger("sleep 60 & sleep 60") as leader:
        await asyncio.to_thread(started.wait_for, 3)
        members = GroupMembers(leader.pid, "", lambda: leader.returncode is not None)

        assert members.signal(9) == [leader.pid]
        await asyncio.to_thread(started.wait_for, 0)


async def test_a_cancellation_does_not_stop_the_ending() -> None:
    tree = await start_and_wait_for("trap '' TERM; sleep 60; sleep 60", 2)
    ending = asyncio.create_task(tree.end(0.2))
    await asyncio.sleep(0.05)

    ending.cancel()

    with pytest.raises(asyncio.CancelledError):
        await ending
    assert await tree.find_pids() == []


async def test_a_start_that_is_cancelled_leaves_nothing(started: Started) -> None:
    starting = asyncio.create_task(start("sleep 60", stdout=subprocess.PIPE))
    await asyncio.sleep(0)

    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert started.pids() == []


async def test_the_event_loop_goes_on_while_a_tree_is_ended() -> None:
    tree = await start_and_wait_for("trap '' TERM; sleep 60; sleep 60", 2)
    ending = asyncio.create_task(tree.end(0.2))
    turns = 0

    while not ending.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 50


async def test_what_cannot_be_started_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await ProcessTree.start(["no-such-program"], environment={})


async def test_a_pipe_can_be_read_by_the_event_loop() -> None:
    tree = await ProcessTree.start(["bash", "-c", "echo one; echo two"], environment=os.environ)

    async with reading(tree.stdout) as stream:
        assert await stream.read() == b"one\ntwo\n"

    assert await tree.wait() == 0
    tree.close_pipes()


@pytest.mark.parametrize("ends", [False, True], ids=["by an exception", "while the child runs"])
async def test_leaving_the_block_of_a_tree_early_closes_its_pipes_and_kills_it(started: Started, ends: bool) -> None:
    tree = await start("setsid sleep 60 & sleep 60", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with suppress(ValueError):
        async with tree:
            await asyncio.to_thread(started.wait_for, 3)
            if not ends:
                raise ValueError

    assert started.pids() == []
    assert [pipe.closed for pipe in (tree.stdin, tree.stdout) if pipe is not None] == [True, True]


async def test_leaving_the_block_of_a_tree_leaves_alone_what_outlives_a_child_that_has_exited(started: Started) -> None:
    async with await start("(setsid sleep 60 &)") as tree:
        assert await tree.wait() == 0

    assert len(started.pids()) == 1
    await tree.kill()


async def test_a_cancellation_leaves_nothing_open_wherever_a_program_is_waited_for() -> None:
    async def run() -> None:
        async with await ProcessTree.start(["true"], environment=os.environ, stdin=subprocess.PIPE) as tree:
            async with reading(tree.stdout) as output, reading(tree.stderr) as errors:
                await output.read()
                await errors.read()
            await tree.wait()

    assert await cancelled_everywhere(run) > 2
