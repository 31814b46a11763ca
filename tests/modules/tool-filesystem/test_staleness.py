"""Files that nobody has read, or that changed since: allowed, remarked upon, or refused."""

import os
from typing import Any

import pytest


async def change(files: Any, tool: str) -> Any:
    return await files.use(tool, {"file_path": "a.txt", "content": "new", "old_string": "old", "new_string": "new"})


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_a_file_that_was_not_read_is_not_changed_where_that_is_enforced(
    mount_files: Any, code_of: Any, tool: str
) -> None:
    files = await mount_files(read_before_write="enforce")
    path = files.folder / "a.txt"
    path.write_text("old")

    assert code_of(await change(files, tool)) == "not_read"
    assert path.read_text() == "old"

    await files.read("a.txt")
    assert (await change(files, tool)).success


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_a_file_that_changed_since_it_was_read_is_stale(mount_files: Any, code_of: Any, tool: str) -> None:
    files = await mount_files(read_before_write="enforce")
    path = files.folder / "a.txt"
    path.write_text("old")
    await files.read("a.txt")
    path.write_text("old, by somebody else")

    assert code_of(await change(files, tool)) == "stale_file"
    assert path.read_text() == "old, by somebody else"


async def test_a_change_of_the_same_size_is_noticed_by_its_time(mount_files: Any, code_of: Any) -> None:
    files = await mount_files(read_before_write="enforce")
    path = files.folder / "a.txt"
    path.write_text("old")
    await files.read("a.txt")
    os.utime(path, ns=(0, 0))

    assert code_of(await change(files, "edit_file")) == "stale_file"


async def test_new_files_and_ones_own_writes_need_no_reading(mount_files: Any) -> None:
    files = await mount_files(read_before_write="enforce")

    results = [
        await files.write("a.txt", "old"),
        await files.edit("a.txt", "old", "new"),
        await files.edit("a.txt", "new", "newer"),
        await files.write("a.txt", "newest"),
    ]

    assert all(result.success for result in results)
    assert not any("warning" in result.output for result in results)


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_a_warning_says_what_enforcement_would_refuse(mount_files: Any, tool: str) -> None:
    files = await mount_files(read_before_write="warn")
    (files.folder / "a.txt").write_text("old")

    result = await change(files, tool)

    assert "has not been read" in result.output["warning"]
    assert (files.folder / "a.txt").read_text() == "new"


async def test_by_default_nobody_asks(files: Any) -> None:
    (files.folder / "a.txt").write_text("old")

    assert "warning" not in (await change(files, "write_file")).output


async def test_sessions_do_not_know_what_others_have_read(mount_files: Any, code_of: Any) -> None:
    one, other = [await mount_files(read_before_write="enforce") for _ in range(2)]
    (one.folder / "a.txt").write_text("old")
    await one.read("a.txt")

    assert code_of(await change(other, "edit_file")) == "not_read"
    assert (await change(one, "edit_file")).success
