"""Servers that end unasked: what calls are told, when they are started again, and when not."""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from raw_mcp_server import entry

TOOLS = ("--tools", "echo", "crash", "silence", "close")


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_server_killed_during_a_call_is_started_again(start_servers: Any, protocol: str) -> None:
    mounted = await start_servers({"s": entry(*TOOLS, protocol=protocol)})
    calling = asyncio.create_task(mounted.call("silence"))
    await asyncio.sleep(0.05)

    os.kill(mounted.status()["pid"], signal.SIGKILL)

    result = await calling
    assert (result.error["code"], result.error["retryable"]) == ("connection_lost", False)
    assert (result.error["server"], result.error["tool"]) == ("s", "silence")
    await mounted.until(lambda: len(mounted.told("server_started")) == 2)
    assert mounted.told("server_stopped")[0] == {
        **mounted.told("server_stopped")[0],
        "server": "s",
        "reason": "exited",
        "exit_code": -signal.SIGKILL,
    }
    assert len(mounted.told("server_stopped")) == 1
    assert mounted.told("server_failed") == []
    assert mounted.told("server_started")[1]["restarts"] == 1
    assert (await mounted.call("echo", text="again")).output == "again"
    assert mounted.status()["last_error"] == "the server was ended by signal 9"


async def test_tools_stay_mounted_and_answer_at_once_while_a_server_waits_for_its_restart(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry(*TOOLS)}, restart_delay=30)
    await mounted.call("crash")
    await mounted.until(lambda: mounted.status()["state"] == "backoff")

    result = await mounted.call("echo")

    assert result.error["code"] == "server_unavailable"
    assert (result.error["state"], result.error["retryable"]) == ("backoff", True)
    assert result.error["last_error"] == "the server exited with code 3"
    assert 20 < result.error["retry_after"] <= 37.5


async def test_a_call_is_never_sent_twice(start_servers: Any, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    mounted = await start_servers({"s": entry(*TOOLS, "--calls", str(calls))})

    await mounted.call("crash")
    await mounted.until(lambda: len(mounted.told("server_started")) == 2)

    assert calls.read_text().count('"crash"') == 1


async def test_a_server_that_always_exits_is_given_up_after_max_restarts(
    start_servers: Any, tmp_path: Path, complaints: Any, started: Any
) -> None:
    starts = tmp_path / "starts"
    mounted = await start_servers({"s": entry("--exit", "7", "--starts", str(starts))}, restart_delay=0, max_restarts=2)

    await mounted.until(lambda: mounted.status()["state"] == "failed")
    await mounted.until(lambda: len(mounted.told("server_failed")) == 3)

    assert len(starts.read_text().split()) == 3
    first, *_, last = mounted.told("server_failed")
    assert [one["attempt"] for one in mounted.told("server_failed")] == [1, 2, 3]
    assert first["retry_in_s"] == 0
    assert last["retry_in_s"] is None
    assert last["stderr_tail"][-1] == "because of this"
    assert last["error"] == {"type": "ExitError", "msg": "the server exited with code 7"}
    assert mounted.told("server_started") == []
    (complaint,) = complaints()
    assert complaint.endswith("because of this")
    assert started.pids() == []


async def test_waiting_times_double_up_to_a_limit(start_servers: Any) -> None:
    mounted = await start_servers(
        {"s": entry("--exit", "1")}, restart_delay=0.02, restart_max_delay=0.05, max_restarts=3
    )

    await mounted.until(lambda: len(mounted.told("server_failed")) == 4)

    *waits, none = [one["retry_in_s"] for one in mounted.told("server_failed")]
    assert none is None
    assert all(0.75 * base <= wait <= 1.25 * base for wait, base in zip(waits, (0.02, 0.04, 0.05), strict=True))


async def test_max_restarts_0_is_never(start_servers: Any) -> None:
    mounted = await start_servers({"s": entry(*TOOLS)}, max_restarts=0)

    await mounted.call("crash")
    await mounted.until(lambda: mounted.status()["state"] == "failed")
    await mounted.until(lambda: len(mounted.told("server_failed")) == 1)

    assert (await mounted.call("echo")).error["state"] == "failed"
    assert mounted.told("server_stopped")[0]["exit_code"] == 3
    assert mounted.told("server_failed")[0]["stderr_tail"] == ["last words"]


async def test_a_server_that_closes_its_stdout_is_lost_and_ended(start_servers: Any, started: Any) -> None:
    mounted = await start_servers({"s": entry(*TOOLS)}, max_restarts=0, stop_timeout=0.5)

    result = await mounted.call("close")

    assert result.error["code"] == "connection_lost"
    await mounted.until(lambda: mounted.told("server_stopped") != [])
    assert mounted.told("server_stopped")[0]["reason"] == "connection_lost"
    assert started.pids() == []


async def test_after_a_restart_the_tools_are_compared(start_servers: Any, tmp_path: Path, complaints: Any) -> None:
    program = tmp_path / "changing.py"
    program.write_text(
        "import json, pathlib, sys\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "import raw_mcp_server\n"
        "seen = pathlib.Path(sys.argv[1])\n"
        "names = ['crash', 'old'] if not seen.exists() else ['crash', 'new']\n"
        "same = json.dumps([{'name': 'same', 'inputSchema': {'type': 'object'}, 'description': names[1]}])\n"
        "seen.touch()\n"
        "sys.argv = ['raw', '--tools', *names, '--definitions', same]\n"
        "raw_mcp_server.main()\n"
    )
    command = entry()["command"]
    mounted = await start_servers(
        {"s": {"command": command, "args": ["-S", "-I", str(program), str(tmp_path / "seen")]}}
    )
    assert set(mounted.tools) == {"mcp_s_crash", "mcp_s_old", "mcp_s_same"}
    assert mounted.tool("same").description == "old"

    await mounted.call("crash")
    await mounted.until(lambda: mounted.told("tools_changed") != [])

    assert set(mounted.tools) == {"mcp_s_crash", "mcp_s_new", "mcp_s_same"}
    (told,) = mounted.told("tools_changed")
    assert (told["added"], told["removed"], told["changed"]) == (["mcp_s_new"], ["mcp_s_old"], ["mcp_s_same"])
    assert (mounted.tool("same").description, mounted.tool("same").require_approval) == ("new", True)
    assert any("'same' changed" in text for text in complaints(logging.WARNING))


async def test_read_only_and_idempotent_tools_may_be_tried_again(start_servers: Any) -> None:
    definitions = '[{"name": "silence", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": true}}]'
    mounted = await start_servers(
        {"s": entry("--tools", "--definitions", definitions, call_timeout=0.1)},
    )

    result = await mounted.call("silence")

    assert (result.error["code"], result.error["retryable"]) == ("timeout", True)
