"""What is left of a conversation when a process is killed, a disk is full or a directory cannot be written."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from other_user import place_of_another_user

APPENDING = """
import asyncio
from amplifier_module_context_persistent import PersistentContextManager

async def main():
    context = PersistentContextManager(transcript_path=sys.argv[1])
    await context.initialize()
    number = 0
    while True:
        await context.add_message({"role": "user", "content": f"{number} " + "x" * (number * 977 % 50_000)})
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 40, 150])
async def test_a_killed_process_loses_at_most_the_message_in_flight(
    start_python: Any, open_context: Any, file: Any, after: int
) -> None:
    process = start_python(APPENDING, file.path)
    for _ in range(after):
        process.stdout.readline()

    process.send_signal(signal.SIGKILL)
    acknowledged = after + len(process.stdout.readlines())
    process.communicate()

    context = await open_context()
    numbers = [int(message["content"].split()[0]) for message in await context.get_messages()]
    assert numbers == list(range(len(numbers)))
    assert acknowledged <= len(numbers) <= acknowledged + 1


async def test_what_the_killed_process_tore_is_not_glued_to_the_next_message(
    start_python: Any, open_context: Any, file: Any
) -> None:
    process = start_python(APPENDING, file.path)
    for _ in range(20):
        process.stdout.readline()
    process.kill()
    process.communicate()
    file.write(file.contents()[:-7])

    context = await open_context()
    kept = len(await context.get_messages())
    await context.add_message({"role": "user", "content": "after the crash"})
    context.close()

    lines = file.contents().split(b"\n")
    assert json.loads(lines[-2])["content"] == "after the crash"
    assert len(await (await open_context()).get_messages()) == kept + 1


FULL_DISK = """
import asyncio, json, pathlib, resource
from amplifier_core.testing import EventRecorder
from amplifier_module_context_persistent import PersistentContextManager

path, limit = pathlib.Path(sys.argv[1]), int(sys.argv[2])

async def main():
    events = EventRecorder()
    context = PersistentContextManager(transcript_path=path, hooks=events)
    await context.initialize()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    for number in range(6):
        await context.add_message({"role": "user", "content": f"{number} " + "x" * 300})
    kept = len(await context.get_messages())
    full = path.read_text()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await context.add_message({"role": "user", "content": "6 more room"})
    context.close()
    print(json.dumps({"kept": kept, "full": full, "events": events.events, "file": path.read_text()}))

asyncio.run(main())
"""


@pytest.mark.parametrize("limit", [1, 700, 800, 1154, 1155])
def test_a_full_disk_delays_messages_and_loses_none(start_python: Any, file: Any, limit: int) -> None:
    output, errors = start_python(FULL_DISK, file.path, limit).communicate(timeout=60)

    outcome = json.loads(output or "null")
    assert outcome is not None, errors
    assert outcome["kept"] == 6
    assert len(outcome["full"]) <= limit
    assert outcome["full"] == "" or outcome["full"].endswith("\n")
    assert [json.loads(line)["content"].split()[0] for line in outcome["file"].splitlines()] == list("0123456")
    pending = [data["pending"] for _, data in outcome["events"]]
    assert pending == list(range(1, len(pending) + 1))
    assert errors.count("cannot be written") == 1


READ_ONLY = """
import asyncio, json, os, pathlib
from amplifier_core.testing import EventRecorder
from amplifier_module_context_persistent import PersistentContextManager

path = pathlib.Path(sys.argv[1])
if os.geteuid() == 0:  # root may write anywhere
    os.setuid(65534)

async def main():
    events = EventRecorder()
    context = PersistentContextManager(transcript_path=path, hooks=events)
    path.parent.chmod(0o500)
    await context.initialize()
    await context.add_message({"role": "user", "content": "one"})
    kept = len(await context.get_messages())
    path.parent.chmod(0o700)
    await context.add_message({"role": "user", "content": "two"})
    context.close()
    print(json.dumps({"kept": kept, "events": events.events, "file": path.read_text()}))

asyncio.run(main())
"""


@pytest.fixture
def directory_of_nobody() -> Iterator[Path]:
    """A directory that an unprivileged process owns and reaches."""
    with place_of_another_user() as directory:
        yield directory


def test_a_read_only_directory_is_reported_and_made_up_for(start_python: Any, directory_of_nobody: Path) -> None:
    path = directory_of_nobody / "file.jsonl"

    output, errors = start_python(READ_ONLY, path).communicate(timeout=60)

    outcome = json.loads(output or "null")
    assert outcome is not None, errors
    assert outcome["kept"] == 1
    assert [json.loads(line)["content"] for line in outcome["file"].splitlines()] == ["one", "two"]
    [(event, data)] = outcome["events"]
    assert (event, data["pending"], data["path"]) == ("context:persist_error", 1, str(path))
    assert data["error"]["type"] == "PermissionError"


UNANSWERED = """
import asyncio
from amplifier_module_context_persistent import PersistentContextManager

async def main():
    context = PersistentContextManager(transcript_path=sys.argv[1])
    await context.initialize()
    calls = [{"id": one, "tool": "read", "arguments": {}} for one in "abc"]
    await context.add_message({"role": "user", "content": "go"})
    await context.add_message({"role": "assistant", "content": "", "tool_calls": calls})
    await context.add_message({"role": "tool", "tool_call_id": "b", "content": "done"})
    print("running", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def test_calls_that_a_crash_left_unanswered_are_answered_in_the_file(
    start_python: Any, open_context: Any, file: Any
) -> None:
    process = start_python(UNANSWERED, file.path)
    process.stdout.readline()
    process.kill()
    process.communicate()

    context = await open_context()

    view = await context.get_messages_for_request()
    assert [message.get("tool_call_id") for message in view] == [None, None, "a", "b", "c"]
    stored = file.lines()
    assert [message.get("tool_call_id") for message in stored] == [None, None, "b", "a", "c"]
    for message in stored[3:]:
        assert message["metadata"]["synthetic"] is True
        assert json.loads(message["content"])["missing"] is True
    context.close()
    assert len(await (await open_context()).get_messages()) == 5


async def test_calls_that_still_run_elsewhere_are_left_alone(start_python: Any, open_context: Any, file: Any) -> None:
    process = start_python(UNANSWERED, file.path)
    process.stdout.readline()

    context = await open_context()
    process.communicate("")

    assert len(await context.get_messages()) == len(file.lines()) == 3
