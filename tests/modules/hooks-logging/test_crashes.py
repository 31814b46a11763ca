"""Logs of real processes: killed, racing each other, out of space, without permission."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import warm_python
from other_user import place_for_everybody

LOGS = """
import asyncio, os, sys
from amplifier_core.testing import MockCoordinator
from amplifier_module_hooks_logging import mount

async def log(count, size=0, **more):
    coordinator = MockCoordinator()
    await mount(coordinator, {"session_log_template": sys.argv[1]})
    for number in range(count):
        payload = {"number": number, "padding": "x" * (size * number % 20_011), **more}
        await coordinator.hooks.emit("plan:start", payload)
        yield coordinator
"""
UNTIL_KILLED = """
async def main():
    async for _ in log(10**9, 97):
        print("written", flush=True)
asyncio.run(main())
"""
SOME = """
async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    async for _ in log(300, 977, writer=sys.argv[2]):
        pass
asyncio.run(main())
"""
OUT_OF_SPACE = """
import resource

async def main():
    everything = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, everything[1]))
    async for coordinator in log(200, more="y" * 300):
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, everything)
    await coordinator.hooks.emit("plan:end", {})
asyncio.run(main())
"""
WITHOUT_PERMISSION = """
async def main():
    if os.geteuid() == 0:
        os.setuid(65534)
    async for coordinator in log(5):
        pass
    print("refused", flush=True)
    sys.stdin.readline()
    await coordinator.hooks.emit("plan:end", {})
asyncio.run(main())
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return warm_python.Popen(
        [sys.executable, "-c", LOGS + program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def parsed(lines: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_a_killed_process_leaves_whole_lines_except_possibly_the_last(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    with start(UNTIL_KILLED, str(log)) as process:
        assert process.stdout is not None
        acknowledged = sum(1 for _ in zip(range(200), process.stdout, strict=False))
        process.send_signal(signal.SIGKILL)
        acknowledged += sum(1 for _ in process.stdout)

    *whole, last = log.read_bytes().split(b"\n")
    records = parsed(whole)

    assert process.returncode == -signal.SIGKILL
    assert [record["data"]["number"] for record in records] == list(range(len(records)))
    assert len(records) + (last != b"") >= acknowledged >= 200


async def test_after_a_crash_the_next_record_starts_on_a_fresh_line(logs: Any) -> None:
    await logs.mount()
    await logs.emit("plan:start")
    await logs.emit("plan:end")
    logs.cleanup()
    content = logs.path().read_bytes()
    logs.path().write_bytes(content[:-20])

    await logs.mount()
    await logs.emit("prompt:submit")

    first, torn, last = logs.path().read_bytes().splitlines()
    assert content.startswith(first + b"\n" + torn)
    assert [record["event"] for record in parsed([first, last])] == ["plan:start", "prompt:submit"]


def test_processes_that_share_a_log_never_interleave_inside_a_line(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    writers = [start(SOME, str(log), f"w{number}") for number in range(3)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    outcomes = [writer.communicate() for writer in writers]

    data = [record["data"] for record in parsed(log.read_bytes().splitlines())]

    assert [writer.returncode for writer in writers] == [0, 0, 0], outcomes
    for number in range(3):
        assert [one["number"] for one in data if one["writer"] == f"w{number}"] == list(range(300))
    assert len(data) == 900


def test_when_the_disk_is_full_records_are_counted_and_the_rest_is_written_later(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    with start(OUT_OF_SPACE, str(log)) as process:
        _, errors = process.communicate()

    *before, dropped, end = parsed(log.read_bytes().splitlines())

    assert process.returncode == 0, errors
    assert {record["event"] for record in before} == {"plan:start"}
    assert (dropped["event"], end["event"]) == ("logging:dropped", "plan:end")
    assert dropped["data"]["count"] + len(before) == 200
    assert errors.count("cannot be written") == 1


def test_without_permission_nothing_breaks_and_with_it_logging_goes_on() -> None:
    with place_for_everybody() as place:
        folder = place / "logs"
        folder.mkdir(mode=0o555)
        with start(WITHOUT_PERMISSION, str(folder / "events.jsonl")) as process:
            assert process.stdout is not None
            refused = process.stdout.readline()
            folder.chmod(0o777)
            _, errors = process.communicate("go\n")
        records = parsed((folder / "events.jsonl").read_bytes().splitlines())

    assert (refused, process.returncode) == ("refused\n", 0), errors
    assert [record["event"] for record in records] == ["logging:dropped", "plan:end"]
    assert errors.count("cannot be written") == 1
