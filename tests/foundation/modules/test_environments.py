"""Dependencies live in directories of their own, made once and never changed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Started, leaving_nothing

from amplifier_core.testing import wait_for
from amplifier_foundation.modules.environments import Environments
from amplifier_foundation.modules.installer import InstallError, NoInstallerError
from amplifier_foundation.sources import prune

REQUIREMENTS = ("thing>=1",)
PROGRAM = """
import asyncio, sys
from pathlib import Path
from amplifier_foundation.modules.environments import Environments

print(asyncio.run(Environments(Path(sys.argv[1])).ensure("tool-x", ("thing>=1",))))
"""

_events: list[str] | None = None


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _events is None:
        return
    if event in ("subprocess.Popen", "os.posix_spawn", "os.mkdir", "os.rename", "os.remove"):
        _events.append(f"{event} {args[0]}")
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _events.append(f"write {args[0]}")


sys.addaudithook(_note)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    with leaving_nothing(monkeypatch) as found:
        yield found


def directories(cache_dir: Path) -> list[Path]:
    return sorted(path for path in (cache_dir / "env").iterdir() if path.is_dir())


def runs(installer: Path) -> int:
    return installer.read_text().count("run") if installer.exists() else 0


def program(cache_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(cache_dir)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


async def test_an_environment_is_made_once_and_found_again_without_a_process_or_a_write(
    cache_dir: Path, stand_in_installer: Path
) -> None:
    global _events
    made = await Environments(cache_dir).ensure("tool-x", REQUIREMENTS)
    calls: list[None] = []
    _events = seen = []
    try:
        again = await Environments(cache_dir).ensure("tool-x", REQUIREMENTS, on_install=lambda: calls.append(None))
    finally:
        _events = None

    assert made is not None
    assert (again, seen, calls) == (made, [], [])
    assert runs(stand_in_installer) == 1
    sidecar = json.loads((made / "env.json").read_text())
    assert sidecar.keys() >= {"requirements", "pins", "python", "platform", "created_at"}
    assert (sidecar["requirements"], sidecar["pins"]) == (["thing>=1"], ["thing==1.0"])


async def test_equal_requirements_share_a_directory_and_others_do_not(
    cache_dir: Path, stand_in_installer: Path
) -> None:
    environments = Environments(cache_dir)

    one, same, other = await asyncio.gather(
        environments.ensure("tool-x", ("a", "thing>=1")),
        environments.ensure("tool-y", ("thing>=1", "a")),
        environments.ensure("tool-z", ("thing>=2",)),
    )

    assert one == same != other
    assert runs(stand_in_installer) == 2


@pytest.mark.parametrize("requirement", ["pydantic>=2", "amplifier-core>=99", "Amplifier-Foundation", "amplifier>=0.1"])
async def test_what_the_host_provides_is_not_installed(
    cache_dir: Path, stand_in_installer: Path, requirement: str
) -> None:
    assert await Environments(cache_dir).ensure("tool-x", (requirement,)) is None
    assert runs(stand_in_installer) == 0


async def test_a_forced_installation_makes_a_new_directory_and_leaves_the_earlier_one(
    cache_dir: Path, stand_in_installer: Path
) -> None:
    environments = Environments(cache_dir)
    first = await environments.ensure("tool-x", REQUIREMENTS)

    second = await environments.ensure("tool-x", REQUIREMENTS, force=True)
    third = await environments.ensure("tool-x", REQUIREMENTS, force=True)

    assert first is not None
    assert [path.name for path in (second, third) if path] == [f"{first.name}.1", f"{first.name}.2"]
    assert (first / "env.json").is_file()
    assert await environments.ensure("tool-x", REQUIREMENTS) == third


async def test_a_directory_without_its_marker_is_discarded(cache_dir: Path, stand_in_installer: Path) -> None:
    environments = Environments(cache_dir)
    made = await environments.ensure("tool-x", REQUIREMENTS)
    assert made is not None
    (made / "env.json").unlink()
    (made / "old.py").touch()

    again = await environments.ensure("tool-x", REQUIREMENTS)

    assert again == made
    assert not (made / "old.py").exists()
    assert runs(stand_in_installer) == 2


async def test_a_failing_installation_leaves_nothing_and_says_what_failed(
    cache_dir: Path, stand_in_installer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (stand_in_installer.parent / "fail").touch()

    with pytest.raises(subprocess.CalledProcessError) as caught:
        await Environments(cache_dir).ensure("tool-x", REQUIREMENTS)

    assert isinstance(caught.value, InstallError)
    text = str(caught.value)
    assert "tool-x" in text
    assert "thing>=1" in text
    assert "no such thing" in text
    assert "fix:" in text
    assert caught.value.returncode == 1
    assert directories(cache_dir) == []
    assert "tool-x" in caplog.text


async def test_without_an_installer_the_error_says_how_to_get_one(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(FileNotFoundError, match="uv") as caught:
        await Environments(cache_dir).ensure("tool-x", REQUIREMENTS)

    assert isinstance(caught.value, NoInstallerError)
    assert directories(cache_dir) == []


async def test_a_cancelled_installation_ends_every_process_and_leaves_nothing(
    cache_dir: Path, stand_in_installer: Path, started: Started
) -> None:
    (stand_in_installer.parent / "stay").touch()
    task = asyncio.create_task(Environments(cache_dir).ensure("tool-x", REQUIREMENTS))
    await wait_for((stand_in_installer.parent / "staying").exists)
    assert len(started.pids()) >= 2

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    started.wait_for(0)
    assert directories(cache_dir) == []


def test_ctrl_c_ends_the_installer_and_what_it_started(
    cache_dir: Path, stand_in_installer: Path, started: Started
) -> None:
    (stand_in_installer.parent / "stay").touch()
    process = program(cache_dir)
    started.wait_for(4)  # ours, its guard, the installer and what it started

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)

    started.wait_for(0)
    assert directories(cache_dir) == []


def test_a_killed_process_leaves_nothing_running_and_a_usable_cache(
    cache_dir: Path, stand_in_installer: Path, started: Started
) -> None:
    (stand_in_installer.parent / "stay").touch()
    process = program(cache_dir)
    started.wait_for(4)  # ours, its guard, the installer and what it started
    process.kill()
    started.wait_for(0)
    process.communicate(timeout=10)
    (stand_in_installer.parent / "stay").unlink()

    made = asyncio.run(Environments(cache_dir).ensure("tool-x", REQUIREMENTS))

    assert directories(cache_dir) == [made]


def test_two_processes_install_the_same_environment_once(cache_dir: Path, stand_in_installer: Path) -> None:
    processes = [program(cache_dir), program(cache_dir)]

    answers = [process.communicate(timeout=20) for process in processes]

    assert answers[0][0] == answers[1][0] == f"{directories(cache_dir)[0]}\n", answers
    assert runs(stand_in_installer) == 1


def make_old(directory: Path) -> None:
    for part in directory.rglob("*"):
        os.utime(part, (0, 0))


def keeps_access_times(directory: Path) -> bool:
    probe = directory / "probe"
    probe.write_text("x")
    os.utime(probe, (0, 0))
    probe.read_text()
    return probe.stat().st_atime > 0


async def test_an_environment_that_is_used_is_not_pruned(
    cache_dir: Path, tmp_path: Path, stand_in_installer: Path
) -> None:
    if not keeps_access_times(tmp_path):
        pytest.skip("this file system does not say when a file was last read")
    environments = Environments(cache_dir)
    path = await environments.ensure("tool-x", REQUIREMENTS)
    make_old(cache_dir)

    await environments.ensure("tool-x", REQUIREMENTS)

    assert prune(cache_dir).removed == ()
    assert path is not None
    assert path.is_dir()


def test_what_is_known_of_the_host_is_not_kept_among_the_environments(cache_dir: Path) -> None:
    program = PROGRAM.replace("thing>=1", "amplifier-core")

    done = subprocess.run([sys.executable, "-c", program, str(cache_dir)], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "None"
    assert not (cache_dir / "env").exists()
