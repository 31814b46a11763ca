"""Nothing is left running: whatever servers start or refuse, and whenever the session ends."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from mounted_servers import Mounted
from raw_mcp_server import entry


async def test_the_server_its_child_and_a_grandchild_that_left_are_gone(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry("--family")})
    await asyncio.to_thread(started.wait_for, 3)

    await mounted.cleanup()

    assert started.pids() == []
    assert mounted.status()["state"] == "stopped"
    (told,) = mounted.told("server_stopped")
    assert (told["reason"], told["exit_code"]) == ("cleanup", 0)


async def test_what_a_server_started_is_gone_also_when_the_server_exited_by_itself(
    start_servers: Any, started: Any
) -> None:
    mounted = await start_servers({"s": entry("--family", "--tools", "crash")}, max_restarts=0)
    await asyncio.to_thread(started.wait_for, 3)

    await mounted.call("crash")

    await asyncio.to_thread(started.wait_for, 0)
    await mounted.until(lambda: mounted.status()["state"] == "failed")


async def test_a_server_that_ignores_sigterm_is_gone_within_stop_timeout(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry("--stubborn", "--family")}, stop_timeout=1)
    before = time.monotonic()

    await mounted.cleanup()

    assert time.monotonic() - before < 2
    assert started.pids() == []
    assert mounted.told("server_stopped")[0]["exit_code"] == -9


async def test_a_second_cleanup_does_nothing(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry()})

    await mounted.cleanup()
    await mounted.cleanup()
    await mounted.prompt()

    assert started.pids() == []
    assert mounted.tools == {}
    assert len(mounted.told("server_stopped")) == 1


@pytest.mark.parametrize("pause_s", [0, 0.01, 0.03, 0.06, 0.1, 0.2])
async def test_cleanup_during_a_start_leaves_no_process(mount_servers: Any, started: Any, pause_s: float) -> None:
    mounted = await mount_servers({"s": entry("--delay", "0.15", "--family")}, stop_timeout=0.5)
    prompting = asyncio.create_task(mounted.prompt())
    await asyncio.sleep(pause_s)

    await mounted.cleanup()

    assert started.pids() == []
    assert mounted.status()["state"] in ("idle", "stopped")
    await prompting
    assert mounted.tools == {}


async def test_cleanup_during_a_call_ends_it(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry("--tools", "silence", max_concurrent_calls=1)})
    tool = mounted.tool("silence")
    calls = [asyncio.create_task(tool.execute({})) for _ in range(3)]
    await asyncio.sleep(0.05)

    await mounted.cleanup()

    results = await asyncio.gather(*calls)
    assert [result.error["code"] for result in results] == ["connection_lost"] * 3
    assert started.pids() == []
    assert (await tool.execute({})).error["state"] == "stopped"


async def test_cleanup_while_a_server_waits_for_its_restart_is_quick(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry("--exit", "1")}, restart_delay=60)

    async with asyncio.timeout(30):
        await mounted.cleanup()

    assert mounted.status()["state"] == "stopped"
    assert started.pids() == []


async def test_cleanup_goes_on_when_its_task_is_cancelled(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry("--stubborn")}, stop_timeout=0.5)
    cleaning = asyncio.create_task(mounted.cleanup())
    await asyncio.sleep(0.05)

    cleaning.cancel()
    await asyncio.sleep(0.05)
    cleaning.cancel()

    with pytest.raises(asyncio.CancelledError):
        await cleaning
    assert started.pids() == []


async def test_killing_the_task_of_a_session_in_a_call_leaves_nothing_after_its_cleanup(started: Any) -> None:
    is_calling = asyncio.Event()

    async def session() -> None:
        mounted = await Mounted.make({"s": entry("--tools", "silence", "--family")})
        try:
            await mounted.prompt()
            is_calling.set()
            await mounted.call("silence")
        finally:
            await mounted.cleanup()

    running = asyncio.create_task(session())
    await is_calling.wait()
    await asyncio.sleep(0.05)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert started.pids() == []


def test_an_event_loop_that_ends_without_any_cleanup_leaves_nothing(started: Any) -> None:
    async def careless() -> None:
        mounted = await Mounted.make(
            {"s": entry("--family"), "t": entry("--delay", "5")}, startup_timeout=0.3, stop_timeout=0.5
        )
        await mounted.prompt()
        assert started.pids() != []

    asyncio.run(careless())

    assert started.pids() == []


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_a_server_that_stops_reading_its_stdin_does_not_hang_a_call(
    start_servers: Any, started: Any, size: int
) -> None:
    mounted = await start_servers({"s": entry("--deaf")}, call_timeout=0.3, stop_timeout=0.5)

    async with asyncio.timeout(30):
        results = [await mounted.call("echo", text="x" * size) for _ in range(2)]

    assert [result.error["code"] for result in results] == ["timeout", "timeout"]
    await mounted.cleanup()
    assert started.pids() == []


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_call_that_times_out_is_cancelled_at_the_server_and_the_next_one_works(
    start_servers: Any, tmp_path: Path, protocol: str
) -> None:
    calls = tmp_path / "calls"
    server = entry("--tools", "silence", "echo", "--calls", str(calls), protocol=protocol, call_timeout=1)
    mounted = await start_servers({"s": server})
    before = time.monotonic()

    result = await mounted.call("silence")

    assert time.monotonic() - before < 2
    assert result.error == {
        "message": "mcp_s_silence timed out after 1 seconds",
        "code": "timeout",
        "retryable": False,
        "server": "s",
        "tool": "silence",
    }
    assert (await mounted.call("echo", text="next")).output == "next"
    assert "notifications/cancelled" in calls.read_text()
