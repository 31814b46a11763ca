"""What may be touched: lists of paths that `..`, links, case and races cannot talk their way around."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_filesystem import ReadTool, WriteTool, mount

from amplifier_core.testing import MockCoordinator
from amplifier_kit.tools.workspace import is_path_allowed


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the working directory, with a secret in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


async def attempts(files: Any, path: str | Path) -> list[Any]:
    return [await files.write(path, "changed"), await files.edit(path, "secret", "changed")]


@pytest.mark.parametrize("way", ["absolute", "parent", "linked directory", "linked leaf", "dangling leaf", "chain"])
async def test_a_write_that_leads_outside_is_denied_and_the_target_unchanged(
    files: Any, code_of: Any, outside: Path, way: str
) -> None:
    (files.folder / "dir").symlink_to(outside)
    (files.folder / "leaf").symlink_to(outside / "secret.txt")
    (files.folder / "new").symlink_to(outside / "new.txt")
    (files.folder / "sub").mkdir()
    (files.folder / "sub/chain").symlink_to("../dir/../outside/secret.txt")
    path = {
        "absolute": outside / "secret.txt",
        "parent": "sub/../../outside/secret.txt",
        "linked directory": "dir/secret.txt",
        "linked leaf": "leaf",
        "dangling leaf": "new",
        "chain": "sub/chain",
    }[way]

    results = await attempts(files, path)

    assert [code_of(result) for result in results] == ["access_denied"] * 2
    assert results[0].output == f"Access denied: {files.folder / path} is not within allowed write paths"
    assert contents(outside) == {"secret.txt": "secret"}


async def test_a_link_to_the_inside_is_followed_and_stays_a_link(files: Any) -> None:
    target = files.folder / "target.txt"
    target.write_text("old")
    (files.folder / "link").symlink_to("target.txt")
    (files.folder / "dangling").symlink_to("made.txt")

    for name in ("link", "dangling"):
        assert (await files.write(name, "new")).output["file_path"] == str(files.folder / name)

    assert target.read_text() == (files.folder / "made.txt").read_text() == "new"
    assert (files.folder / "link").is_symlink()
    assert (files.folder / "dangling").is_symlink()


async def test_no_path_is_inside_for_beginning_with_the_same_letters(files: Any, code_of: Any) -> None:
    assert code_of(await files.write(f"{files.folder}-not/a.txt", "x")) == "access_denied"
    assert list(files.folder.parent.glob("*-not")) == []


async def test_deny_wins_over_every_grant(mount_files: Any, code_of: Any) -> None:
    files = await mount_files(
        allowed_write_paths=["."], allowed_write_files=["no/grant.txt"], denied_write_paths=["no", "~/x"]
    )
    (files.folder / "no").mkdir()
    (files.folder / "via").symlink_to("no")

    for path in ("no/a.txt", "via/a.txt", "no/grant.txt", "sub/../no/a.txt"):
        result = await files.write(path, "x")
        assert code_of(result) == "access_denied"
        assert result.output == f"Access denied: {files.folder / path} is within denied directories"
    assert list((files.folder / "no").iterdir()) == []


async def test_a_denied_file_is_denied_by_any_of_its_names(mount_files: Any, code_of: Any) -> None:
    files = await mount_files(denied_write_paths=["key"], denied_read_paths=["key"])
    (files.folder / "key").write_text("secret")
    (files.folder / "other name").hardlink_to(files.folder / "key")

    for result in (*await attempts(files, "other name"), await files.read("other name")):
        assert code_of(result) == "access_denied"


async def test_single_files_are_granted_by_equality_even_before_they_exist(
    mount_files: Any, code_of: Any, tmp_path: Path
) -> None:
    files = await mount_files(allowed_write_paths=[], allowed_write_files=["../notes/today.md"])

    assert (await files.write("../notes/today.md", "x")).success
    for path in ("../notes/other.md", "../notes/today.md/x", "a.txt"):
        assert code_of(await files.write(path, "x")) == "access_denied"
    assert contents(tmp_path / "notes") == {"today.md": "x"}


async def test_reading_is_free_unless_it_is_restricted(mount_files: Any, code_of: Any, outside: Path) -> None:
    free, restricted = await mount_files(), await mount_files(allowed_read_paths=["."], denied_read_paths=["private"])
    (free.folder / "private").mkdir()
    (free.folder / "private/a.txt").write_text("secret")
    (free.folder / "link").symlink_to(outside / "secret.txt")

    assert (await free.read(outside / "secret.txt")).success
    denied = [await restricted.read(path) for path in (outside / "secret.txt", "link", outside, "../outside/none")]
    assert [code_of(result) for result in denied] == ["access_denied"] * 4
    assert denied[1].output == "Access denied: link is not within allowed read paths"
    assert "within denied directories" in (await restricted.read("private/a.txt")).output
    assert not any("secret" in str(result.error).replace("secret.txt", "") for result in denied)


async def test_the_shorthand_fills_in_for_the_lists_that_are_not_given(
    mount_files: Any, code_of: Any, outside: Path
) -> None:
    both = await mount_files(allowed_paths=[str(outside)])
    reads = await mount_files(allowed_paths=[str(outside)], allowed_write_paths=["."])
    everything = await mount_files(allowed_paths=[], allowed_read_paths=None)

    assert (await both.write(outside / "a.txt", "x")).success
    assert code_of(await both.write("a.txt", "x")) == code_of(await both.read("/etc/hosts")) == "access_denied"
    assert (await reads.write("a.txt", "x")).success
    assert code_of(await reads.read("a.txt")) == "access_denied"
    assert (await everything.read("a.txt")).success
    assert code_of(await everything.write("a.txt", "x")) == "access_denied"


async def test_home_and_relative_entries_work_in_every_list(
    mount_files: Any, code_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    files = await mount_files(
        allowed_read_paths=["~/in"], allowed_write_paths=["~/in", "rel"], denied_write_paths=["~/in/no"]
    )

    assert (await files.write("~/in/a.txt", "x")).output["file_path"] == str(tmp_path / "home/in/a.txt")
    assert (await files.read("~/in/a.txt")).success
    assert (await files.write("rel/a.txt", "x")).success
    assert code_of(await files.read("rel/a.txt")) == code_of(await files.write("~/in/no/a", "x")) == "access_denied"


@pytest.mark.parametrize("value", [7, {"a": 1}, [7]], ids=str)
async def test_a_list_that_is_none_closes_instead_of_opening(
    mount_files: Any, code_of: Any, caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    for key, tool in (
        ("allowed_read_paths", "read_file"),
        ("denied_read_paths", "read_file"),
        ("allowed_write_paths", "write_file"),
        ("denied_write_paths", "write_file"),
        ("allowed_paths", "read_file"),
    ):
        caplog.clear()
        files = await mount_files(**{key: value})
        (files.folder / "a.txt").write_text("x")

        assert code_of(await files.use(tool, {"file_path": "a.txt", "content": "y"})) == "access_denied"
        (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert repr(key) in warning


async def test_an_entry_that_was_never_expanded_grants_nothing(mount_files: Any, code_of: Any) -> None:
    files = await mount_files(allowed_write_paths=["", "${PROJECT}"])

    assert code_of(await files.write("a.txt", "x")) == "access_denied"


async def test_each_session_keeps_its_own_working_directory(tmp_path: Path) -> None:
    class Coordinator:
        def __init__(self) -> None:
            self.directory: Path | None = None

        def get_capability(self, name: str) -> Any:
            return self.directory if name == "session.working_dir" else None

    config: dict[str, Any] = {}
    sessions = [Coordinator(), Coordinator()]
    tools = [WriteTool(config, coordinator) for coordinator in sessions]
    for name, coordinator in zip("ab", sessions, strict=True):
        coordinator.directory = tmp_path / name  # known only after the tools were made
        coordinator.directory.mkdir()

    results = [await tool.execute({"file_path": "x.txt", "content": "x"}) for tool in tools]

    assert [result.output["file_path"] for result in results] == [str(tmp_path / name / "x.txt") for name in "ab"]
    assert config == {}


async def test_without_anything_the_process_says_where_relative_paths_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = WriteTool(None, None)
    monkeypatch.chdir(tmp_path)

    assert (await tool.execute({"file_path": "x.txt", "content": "x"})).success
    assert (tmp_path / "x.txt").exists()


async def test_a_link_that_leads_to_itself_is_refused(files: Any, code_of: Any) -> None:
    (files.folder / "loop").symlink_to("loop")

    assert code_of(await files.write("loop", "x")) == code_of(await files.read("loop")) == "access_denied"


def test_the_public_question_is_answered_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside, denied, outside = tmp_path / "in/a", tmp_path / "in/no/a", tmp_path / "out"

    assert is_path_allowed(inside, ["in"], ["in/no"]) == (True, None)
    assert is_path_allowed(denied, ["in"], ["in/no"], [denied]) == (
        False,
        f"Access denied: {denied} is within denied directories",
    )
    assert is_path_allowed(outside, ["in"], []) == (
        False,
        f"Access denied: {outside} is not within allowed write paths",
    )
    assert is_path_allowed(outside, ["in"], [], [outside]) == (True, None)
    assert is_path_allowed(outside, None, None) == (True, None)


SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
exchange, here, both = ctypes.CDLL(None).renameat2, -100, 2
print("ready", flush=True)
while exchange(here, b"sub", here, b"link", both) == 0:  # a directory one moment, a link to the outside the next
    pass
"""


@contextmanager
def swapping(folder: Path) -> Iterator[None]:
    """Have another process swap a directory for a link, as fast as it can."""
    with subprocess.Popen([sys.executable, "-c", SWAPPER, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
            assert process.poll() is None, "nobody swaps any more"
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="two names are exchanged at once with renameat2, which is Linux's")
async def test_a_directory_that_another_process_swaps_for_a_link_never_lets_anything_out(
    mount_files: Any, outside: Path
) -> None:
    files = await mount_files(allowed_read_paths=["."])
    (files.folder / "sub").mkdir()
    (files.folder / "sub/secret.txt").write_text("harmless")
    (files.folder / "link").symlink_to(outside)

    with swapping(files.folder):
        results: list[Any] = []
        for number in range(60):
            results += await asyncio.gather(
                files.read("sub/secret.txt"),
                files.write(f"sub/new-{number}/a.txt", "written"),
                files.edit("sub/secret.txt", "secret", "changed"),
            )

    assert contents(outside) == {"secret.txt": "secret"}
    shown = [result.output["content"] for result in results if result.success and "content" in result.output]
    assert set(shown) <= {"     1\tharmless"}


@pytest.mark.parametrize("opened", ["sub", "secret.txt"], ids=["directory", "leaf"])
@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file"])
async def test_a_swap_between_check_and_opening_is_noticed(
    mount_files: Any, outside: Path, monkeypatch: pytest.MonkeyPatch, opened: str, tool: str
) -> None:
    files = await mount_files(allowed_read_paths=["."])
    sub = files.folder / "sub"
    sub.mkdir()
    (sub / "secret.txt").write_text("secret, but harmless")
    place = sub if opened == "sub" else sub / "secret.txt"
    target = outside if opened == "sub" else outside / "secret.txt"
    swapped, original = list[bool](), os.open

    def open_after_swap(path: Any, *args: Any, **options: Any) -> int:
        if path == opened and not swapped:
            swapped.append(True)
            place.rename(files.folder / "moved")
            place.symlink_to(target)
        return original(path, *args, **options)

    monkeypatch.setattr(os, "open", open_after_swap)
    given = {"file_path": "sub/secret.txt", "content": "changed", "old_string": "secret", "new_string": "changed"}
    result = await files.use(tool, given)

    assert swapped == [True]
    assert contents(outside) == {"secret.txt": "secret"}
    assert result.success is False or "content" not in result.output
    if tool != "write_file" or opened == "sub":
        assert result.error["code"] == "access_denied"


async def test_a_directory_that_is_moved_out_while_it_is_opened_takes_nothing_along(
    mount_files: Any, code_of: Any, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await mount_files(allowed_read_paths=["."])
    sub = files.folder / "sub"
    sub.mkdir()
    (sub / "a.txt").write_text("text")
    original = os.open

    def open_and_move(path: Any, *args: Any, **options: Any) -> int:
        descriptor = original(path, *args, **options)
        if path == "sub":
            sub.rename(outside / "sub")
        return descriptor

    monkeypatch.setattr(os, "open", open_and_move)
    result = await files.write("sub/a.txt", "changed")

    assert code_of(result) == "access_denied"
    assert (outside / "sub/a.txt").read_text() == "text"


async def test_the_working_directory_may_lie_below_one_that_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o311)

    result = await WriteTool({"working_dir": str(tmp_path / "a")}).execute({"file_path": "b/c.txt", "content": "x"})

    assert result.success
    (tmp_path / "a").chmod(0o755)


async def test_the_approval_hook_is_told_what_it_wants_to_know() -> None:
    plain, asking = ReadTool({}), WriteTool({"require_approval": "yes"})

    assert plain.get_metadata() == {"requires_approval": False, "approval_hints": {"risk_level": "low"}}
    assert asking.get_metadata()["requires_approval"] is asking.require_approval is True


@pytest.mark.parametrize(
    ("asks", "hooks", "warns"),
    [(True, [], True), (True, [{"module": "hooks-approval"}], False), (False, [], False)],
)
async def test_approval_that_nothing_in_the_session_asks_for_is_warned_about(
    caplog: pytest.LogCaptureFixture, asks: bool, hooks: list[dict[str, str]], warns: bool
) -> None:
    coordinator = MockCoordinator()
    coordinator.config["hooks"] = hooks

    await mount(coordinator, {"require_approval": asks})

    assert ("no hooks-approval is in the session" in caplog.text) == warns
