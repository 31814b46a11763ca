"""What the session is told about a command."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.testing import wait_for

FINISHED = "tool-bash:finished"
STARTED = "tool-bash:started"
STAMPS = {"timestamp", "session_id", "parent_id"}


def facts(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in STAMPS | {"pid", "duration_ms"}}


async def test_a_run_is_told_once_at_its_start_and_once_at_its_end(shell: Any, tmp_path: Path) -> None:
    await shell.run("printf abc; printf de >&2; exit 2", timeout=7)

    (begun,), (ended,) = shell.told(STARTED), shell.told(FINISHED)
    common = {"command": "printf abc; printf de >&2; exit 2", "background": False}
    assert facts(begun) == {**common, "cwd": str(tmp_path), "timeout": 7}
    assert facts(ended) == {
        **common,
        "returncode": 2,
        "stdout_bytes": 3,
        "stderr_bytes": 2,
        "truncated": False,
        "timed_out": False,
        "cancelled": False,
    }
    assert isinstance(ended["duration_ms"], int)
    assert begun["pid"] == ended["pid"]
    assert [name for name, _ in shell.recorder.events] == [STARTED, FINISHED]


async def test_a_timeout_is_told_once(shell: Any) -> None:
    await shell.run("sleep 60", timeout=0.1)

    (ended,) = shell.told(FINISHED)
    assert (ended["timed_out"], ended["cancelled"], ended["returncode"]) == (True, False, -9)
    assert len(shell.told(STARTED)) == 1


async def test_a_cancellation_is_told_once(shell: Any) -> None:
    running = asyncio.create_task(shell.run("sleep 60"))
    assert await wait_for(lambda: shell.told(STARTED) != [], timeout=30)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    (ended,) = shell.told(FINISHED)
    assert (ended["timed_out"], ended["cancelled"], ended["returncode"]) == (False, True, -9)
    assert len(shell.told(STARTED)) == 1


async def test_a_denied_or_refused_command_is_not_told(shell: Any) -> None:
    await shell.run("sudo x")
    await shell.run("")
    await shell.run("echo hi", timeout=-1)

    assert shell.recorder.events == []


async def test_all_names_are_collected_on_the_channel(shell: Any) -> None:
    announced = await shell.coordinator.collect_contributions("observability.events")

    assert announced == [[STARTED, FINISHED, "tool-bash:undone"]]


async def test_payloads_are_json_and_a_long_command_is_cut(shell: Any) -> None:
    await shell.run(f"echo {'x' * 1000}")

    for _, data in shell.recorder.events:
        assert len(data["command"]) == 200
        json.dumps(data)


async def test_a_sink_that_fails_changes_nothing(shell: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def emit(self, event: str, data: dict[str, Any]) -> None:
            raise RuntimeError("sink")

    shell.coordinator.hooks = Broken()
    with caplog.at_level(logging.WARNING):
        output = await shell.output("echo hi")

    assert output["stdout"] == "hi\n"
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def test_commands_and_their_output_stay_out_of_the_log(shell: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await shell.run("echo hunter2")

    assert "hunter2" not in caplog.text
