"""Backups that cannot be written, and processes that end in the middle of one."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_python
from amplifier_module_hooks_backup import read_backup

MODULES = Path(__file__).parents[3] / "modules"

# What the session needs is loaded before the process gives up its rights: it may not see these files any more.
WITHOUT_RIGHTS = """
import os

import amplifier_core.testing
import amplifier_module_context_simple, amplifier_module_hooks_backup, amplifier_module_loop_basic

if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65_534)
    os.setuid(65_534)
"""

# Runs a session with one turn; what is before it may prepare or spoil its surroundings.
SESSION = """
import asyncio, json, os, sys

from amplifier_core import AmplifierSession
from amplifier_core.testing import EventRecorder, MockProvider


async def main():
    plan = {
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
        "hooks": [{"module": "hooks-backup", "config": {"backup_dir": sys.argv[1]}}],
    }
    session = AmplifierSession(plan)
    await session.initialize()
    recorder = EventRecorder()
    session.coordinator.hooks.register("backup:failed", recorder.record, name="recorder")
    await session.coordinator.mount("providers", MockProvider(["hello"]), name="mock")
    await session.execute("hi")
    context = session.coordinator.get("context")
    for number in range(40):
        await context.add_message({"role": "user", "content": "word " * 100})
    view = await context.get_messages_for_request(token_budget=2000)
    stored = len(await context.get_messages())
    await session.cleanup()
    failed = [data["event"] for _, data in recorder.events]
    print(json.dumps({"compacted": len(view) < stored, "failed": failed}))


asyncio.run(main())
"""


def run(folder: Path, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the session in a process of its own, which keeps its backups in `folder`."""
    paths = [str(path) for path in MODULES.iterdir() if path.is_dir()]
    return warm_python.run(
        [sys.executable, "-c", before + SESSION, str(folder)],
        env={"PYTHONPATH": os.pathsep.join([*paths, *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_compaction_and_shutdown_proceed_when_the_folder_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir(mode=0o555)

    done = run(folder, before=WITHOUT_RIGHTS)

    assert (done.returncode, done.stdout) == (
        0,
        '{"compacted": true, "failed": ["context:pre_compact", "session:end"]}\n',
    ), done.stderr
    assert list(folder.iterdir()) == []


async def test_a_folder_that_cannot_be_made_is_announced_and_nothing_is_blocked(
    mount_backups: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    backups = await mount_backups(folder=tmp_path / "file/backups", per_turn=True)
    backups.say("hello")

    for event in ("context:pre_compact", "orchestrator:complete", "session:end"):
        result = await backups.emit(event)
        assert (result.action, "backup_location" in result.data) == ("continue", False)
    backups.cleanup()

    assert [(event, data["event"]) for event, data in backups.recorder.events] == [
        ("backup:failed", "context:pre_compact"),
        ("backup:failed", "orchestrator:complete"),
        ("backup:failed", "session:end"),
    ]
    assert all("Not a directory" in data["error"] for _, data in backups.recorder.events)
    assert [record.levelname for record in caplog.records].count("ERROR") == 3


async def test_cleanup_never_raises_when_the_final_backup_cannot_be_written(
    mount_backups: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    backups = await mount_backups(folder=tmp_path / "file/backups")
    backups.say("hello")

    assert backups.cleanup() is None
    assert "ERROR" in {record.levelname for record in caplog.records}


@pytest.mark.parametrize("call", ["os.link", "os.fsync"])
def test_a_process_that_is_killed_before_the_file_has_its_name_leaves_no_half_backup(tmp_path: Path, call: str) -> None:
    folder = tmp_path / "backups"
    killing = f"import os, signal\n{call} = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)\n"

    killed = run(folder, before=killing)
    left = [path.name for path in folder.iterdir()]
    after = run(folder)

    assert killed.returncode == -9
    assert len(left) == 1
    assert left[0].startswith(".transcript_")
    assert after.returncode == 0, after.stderr
    complete = sorted(folder.glob("transcript_*"))
    assert [path.name.split("_")[1] for path in complete] == ["compact", "final"]
    assert all(len(read_backup(path)["messages"]) == 42 for path in complete)


async def test_on_a_file_system_without_hard_links_backups_are_kept_as_well(
    mount_backups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*args: Any, **options: Any) -> None:
        raise PermissionError("not supported")

    monkeypatch.setattr(os, "link", no_links)
    backups = await mount_backups()
    for text in ("one", "two"):
        backups.say(text)
        await backups.emit("context:pre_compact")

    assert sorted(len(backups.texts(file)) for file in backups.files) == [1, 2]
    assert len(list(backups.folder.iterdir())) == 2


async def test_backups_that_are_written_at_the_same_time_do_not_overwrite_each_other(mount_backups: Any) -> None:
    several = [await mount_backups() for _ in range(8)]
    for number, backups in enumerate(several):
        backups.say("x" * 300_000, str(number))

    await asyncio.gather(*(backups.emit("context:pre_compact") for backups in several))

    assert sorted(several[0].texts(file)[1] for file in several[0].files) == [str(number) for number in range(8)]
    assert len(list(several[0].folder.iterdir())) == 8


async def test_older_backups_that_cannot_be_removed_do_not_spoil_the_new_one(
    mount_backups: Any,
) -> None:
    backups = await mount_backups(max_backups=1)
    older = backups.folder / "transcript_compact_20200101_000000_test-session.jsonl"
    older.mkdir(parents=True)  # a directory of that name cannot be unlinked
    backups.say("one")

    result = await backups.emit("context:pre_compact")

    assert [str(path) for path in backups.files] == [str(older), result.data["backup_location"]]
    assert [event for event, _ in backups.recorder.events] == ["backup:written"]
