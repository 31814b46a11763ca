"""Timeouts and cancellation: whatever a command started is gone, and what it printed is kept."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from interruptions import cancelled_everywhere

from amplifier_core import ToolResult

LONG = {
    "a background child": "sleep 60 & sleep 60",
    "a child in a session of its own whose parent has exited": "(setsid sleep 60 &) ; sleep 60",
    "a child forked twice": "setsid bash -c 'setsid nohup sleep 60 >/dev/null 2>&1 & exit' ; sleep 60",
    "a child that closed everything": "setsid sleep 60 </dev/null >/dev/null 2>&1 & sleep 60",
    "a pipeline": "sleep 60 | cat | cat",
    "refusal to stop": "trap '' TERM; sleep 60; sleep 60",
    "a loop that starts more and more": "while :; do sleep 0.05 & done",
    "a child without the environment": "env -i sleep 60 & sleep 60",
    "a child that is stopped": "sleep 60 & kill -STOP $!; sleep 60",
    "a waiting shell": "sleep 60 & disown; wait; sleep 60",
}


@pytest.mark.parametrize("command", LONG.values(), ids=LONG)
async def test_a_timeout_leaves_no_process_of_the_tree(free_shell: Any, started: Any, command: str) -> None:
    async with asyncio.timeout(30):
        result = await free_shell.run(command, timeout=0.2)

    assert result.error["code"] == "timeout"
    assert started.pids() == []


@pytest.mark.parametrize("command", LONG.values(), ids=LONG)
async def test_a_cancellation_leaves_no_process_of_the_tree(free_shell: Any, started: Any, command: str) -> None:
    running = asyncio.create_task(free_shell.run(command))
    await asyncio.sleep(0.15)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert started.pids() == []


async def test_sleep_60_and_sleep_60_with_timeout_1_returns_within_3_seconds(shell: Any, started: Any) -> None:
    async with asyncio.timeout(3):
        result = await shell.run("sleep 60 & sleep 60", timeout=1)

    assert result.error["message"] == "Command timed out after 1 seconds"
    assert started.pids() == []


@pytest.mark.parametrize("pause_s", [0, 0.002, 0.005, 0.01, 0.02])
async def test_a_cancellation_at_any_moment_leaves_nothing(shell: Any, started: Any, pause_s: float) -> None:
    running = asyncio.create_task(shell.run("sleep 60"))
    await asyncio.sleep(pause_s)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert started.pids() == []
    assert len(shell.told("tool-bash:started")) == len(shell.told("tool-bash:finished"))


async def test_a_second_cancellation_does_not_stop_the_ending(shell: Any, started: Any) -> None:
    running = asyncio.create_task(shell.run("trap '' TERM; sleep 60; sleep 60"))
    await asyncio.sleep(0.1)

    running.cancel()
    await asyncio.sleep(0.05)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert started.pids() == []


async def test_the_tree_of_a_nested_command_is_ended_with_the_outer_one(
    mount_shell: Any, started: Any, tmp_path: Path
) -> None:
    root = Path(__file__).parents[3]
    script = tmp_path / "nested.py"
    script.write_text(
        "import asyncio\n"
        "from amplifier_module_tool_bash import BashTool\n"
        "tool = BashTool({'env_deny': ['*'], 'env': {'PATH': '/usr/bin:/bin'}, 'sandbox': 'off'})\n"
        "asyncio.run(tool.execute({'command': '(setsid sleep 60 &); sleep 60; true'}))\n"
    )
    shell = await mount_shell(env={"PYTHONPATH": f"{root / 'src'}:{root / 'modules/tool-bash'}"})
    running = asyncio.create_task(shell.run(f"{shlex.join([sys.executable, str(script)])}; true", timeout=20))
    await asyncio.to_thread(started.wait_for, 5)

    running.cancel()

    await asyncio.gather(running, return_exceptions=True)
    assert started.pids() == []


async def test_cleanup_ends_a_command_that_is_still_waited_for(shell: Any, started: Any) -> None:
    running = asyncio.create_task(shell.run("(setsid sleep 60 &) ; sleep 60; true"))
    await asyncio.to_thread(started.wait_for, 3)

    await shell.cleanup()

    assert started.pids() == []
    assert (await running).error["code"] == "exit_status"
    assert len(shell.told("tool-bash:finished")) == 1


@pytest.mark.parametrize("is_background", [False, True])
async def test_cleanup_ends_a_command_that_is_just_being_started(
    mount_shell: Any, started: Any, is_background: bool
) -> None:
    shell = await mount_shell(kill_background_on_cleanup=True)
    for _ in range(5):
        running = asyncio.create_task(shell.run("sleep 60; true", run_in_background=is_background))
        while not started.pids():  # noqa: ASYNC110 - seen before the tool knows of it
            await asyncio.sleep(0)

        await shell.cleanup()

        assert started.pids() == []
        await running


async def test_what_was_printed_before_the_timeout_is_kept(shell: Any) -> None:
    result = await shell.run("echo out; echo err >&2; sleep 60", timeout=0.2)

    assert result.success is False
    assert result.output == "Command timed out after 0.2 seconds\nout\n\nerr\n"
    assert result.error == {
        "message": "Command timed out after 0.2 seconds",
        "code": "timeout",
        "timeout": 0.2,
        "stdout": "out\n",
        "stderr": "err\n",
    }


async def test_a_timeout_is_cut_to_the_longest_that_is_allowed(mount_shell: Any) -> None:
    shell = await mount_shell(max_timeout=0.1)

    asked, unasked = await asyncio.gather(shell.run("sleep 60", timeout=600), shell.run("sleep 60"))

    assert [result.error["timeout"] for result in (asked, unasked)] == [0.1, 0.1]


async def test_the_configured_timeout_counts_where_none_is_given(mount_shell: Any) -> None:
    shell = await mount_shell(timeout="0.1")

    assert (await shell.run("sleep 60")).error["timeout"] == 0.1


@pytest.mark.parametrize("is_background", [False, True])
async def test_a_cancellation_leaves_nothing_open_wherever_the_command_waits(
    shell: Any, tmp_path: Path, is_background: bool
) -> None:
    announced: list[ToolResult] = []

    async def run() -> None:
        announced.append(await shell.run("exec true", run_in_background=is_background))

    assert await cancelled_everywhere(run) > 3
    logs = {result.output["log_file"] for result in announced} if is_background else set()
    assert set(map(str, tmp_path.iterdir())) == logs  # noqa: ASYNC240 - a directory of our own
