"""Commands that go on after the tool has answered."""

import asyncio
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_bash import BashTool

from amplifier_core.testing import wait_for


async def until_finished(shell: Any, count: int = 1) -> list[dict[str, Any]]:
    assert await wait_for(lambda: len(shell.told("tool-bash:finished")) >= count, timeout=30)
    told: list[dict[str, Any]] = shell.told("tool-bash:finished")
    return told


def text_of(path: str) -> str:
    return Path(path).read_text()


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def has_logs(directory: Path) -> bool:
    return any(directory.glob("*.log"))


def is_alive(pid: int) -> bool:
    """Say whether there is such a process, even a dead one that nobody reaped."""
    return Path(f"/proc/{pid}").exists()


async def test_a_background_command_runs_on_and_its_log_file_fills(shell: Any, started: Any) -> None:
    async with asyncio.timeout(30):
        output = await shell.output("echo out; echo err >&2; sleep 60", run_in_background=True)
    assert await wait_for(lambda: text_of(output["log_file"]) == "out\nerr\n", timeout=30)

    assert set(output) == {"pid", "message", "note", "log_file"}
    assert str(output["pid"]) in output["message"]
    assert output["pid"] in started.pids()
    assert mode_of(output["log_file"]) == 0o600
    started.end()


async def test_a_background_command_has_no_input_and_no_timeout(mount_shell: Any) -> None:
    shell = await mount_shell(timeout=0.1)

    output = await shell.output("cat; sleep 0.3; echo end", run_in_background=True)
    finished = await until_finished(shell)

    assert text_of(output["log_file"]) == "end\n"
    assert finished[0]["returncode"] == 0


async def test_a_background_command_is_reaped_and_announced_once(shell: Any) -> None:
    pid = (await shell.output("echo hello; exit 4", run_in_background=True))["pid"]

    (finished,) = await until_finished(shell)

    assert not is_alive(pid)
    facts = ("pid", "background", "returncode", "stdout_bytes", "stderr_bytes", "truncated", "timed_out", "cancelled")
    assert [finished[key] for key in facts] == [pid, True, 4, 6, 0, False, False, False]
    assert [data["timeout"] for data in shell.told("tool-bash:started")] == [None]


async def test_without_a_directory_the_log_is_private(mount_shell: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shell = await mount_shell(background_log_dir="")

    output = await shell.output("true", run_in_background=True)
    await until_finished(shell)

    directory = Path(output["log_file"]).parent
    assert (directory.parent, mode_of(directory)) == (tmp_path, 0o700)


async def test_a_log_that_cannot_be_created_is_an_error_and_nothing_runs(
    mount_shell: Any, tmp_path: Path, started: Any
) -> None:
    (tmp_path / "file").write_text("")
    shell = await mount_shell(background_log_dir=str(tmp_path / "file"))

    result = await shell.run("sleep 60", run_in_background=True)

    assert (result.error["code"], result.error["type"]) == ("io_error", "FileExistsError")
    assert started.pids() == []


async def test_a_command_that_cannot_start_leaves_no_log(mount_shell: Any, tmp_path: Path) -> None:
    shell = await mount_shell(working_dir=str(tmp_path / "missing"))

    result = await shell.run("sleep 60", run_in_background=True)

    assert result.error["code"] == "not_found"
    assert not has_logs(tmp_path)


async def test_cleanup_leaves_background_commands_alone_by_default(shell: Any, started: Any) -> None:
    await shell.output("sleep 60", run_in_background=True)

    await shell.cleanup()
    await shell.cleanup()

    assert len(started.pids()) > 0
    started.end()


async def test_cleanup_ends_their_trees_where_that_is_configured(mount_shell: Any, started: Any) -> None:
    shell = await mount_shell(kill_background_on_cleanup=True)
    await shell.output("setsid sleep 60 & sleep 60", run_in_background=True)
    await shell.output("(setsid sleep 60 &) ; exit 0", run_in_background=True)
    await until_finished(shell)
    await asyncio.to_thread(started.wait_for, 4)

    await shell.cleanup()

    assert started.pids() == []
    assert len(shell.told("tool-bash:finished")) == 2
    await shell.cleanup()


async def test_a_background_start_that_is_cancelled_leaves_nothing(shell: Any, started: Any) -> None:
    for pause_s in (0, 0.002, 0.004, 0.006):
        starting = asyncio.create_task(shell.run("sleep 60", run_in_background=True))
        await asyncio.sleep(pause_s)
        starting.cancel()
        (answer,) = await asyncio.gather(starting, return_exceptions=True)
        if not isinstance(answer, asyncio.CancelledError):
            started.end()

    assert started.pids() == []


async def test_a_hook_that_is_cancelled_in_takes_the_background_command_with_it(shell: Any, started: Any) -> None:
    reached = asyncio.Event()

    async def slow(event: str, data: dict[str, Any]) -> None:
        reached.set()
        await asyncio.sleep(60)

    shell.coordinator.hooks.register("tool-bash:started", slow)
    starting = asyncio.create_task(shell.run("sleep 60", run_in_background=True))
    await reached.wait()

    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert started.pids() == []
    assert [data["cancelled"] for data in shell.told("tool-bash:finished")] == [True]


async def test_two_mounts_are_independent(mount_shell: Any, started: Any) -> None:
    first, second = await mount_shell(kill_background_on_cleanup=True), await mount_shell()
    await second.output("sleep 60", run_in_background=True)

    await first.cleanup()

    assert len(started.pids()) > 0
    assert (await second.run("echo hi")).success
    started.end()


def test_a_background_command_outlives_its_event_loop(tmp_path: Path, started: Any) -> None:
    async def start() -> dict[str, Any]:
        tool = BashTool({"background_log_dir": str(tmp_path), "sandbox": "off"})
        output: dict[str, Any] = (await tool.execute({"command": "sleep 60", "run_in_background": True})).output
        return output

    pid = asyncio.run(start())["pid"]

    assert pid in started.pids()
    subprocess.run(["kill", "--", f"-{pid}"], check=True)
    started.wait_for(0)
