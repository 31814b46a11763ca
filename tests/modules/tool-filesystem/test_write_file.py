"""`write_file`: exactly the bytes, as a whole or not at all, in the manner of the file that was there."""

import asyncio
import os
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_filesystem import EditTool, WriteTool
from other_user import as_another_user, place_of_another_user


async def test_a_new_file_has_exactly_the_bytes_given_and_its_parents_are_made(files: Any) -> None:
    content = "a\r\nb\nc\rü€\n"

    result = await files.write("deep/er/a.txt", content)

    path = files.folder / "deep/er/a.txt"
    assert path.read_bytes() == content.encode()
    assert result.output == {"file_path": str(path), "bytes": len(content.encode()), "created": True}


async def test_the_mode_of_a_new_file_follows_the_umask(files: Any) -> None:
    before = os.umask(0o027)
    try:
        await files.write("a.txt", "a")
    finally:
        os.umask(before)

    assert stat.S_IMODE((files.folder / "a.txt").stat().st_mode) == 0o640


async def test_a_missing_content_never_truncates_a_file_and_an_empty_one_does(files: Any, code_of: Any) -> None:
    path = files.folder / "a.txt"
    path.write_text("precious")

    for given in ({"file_path": "a.txt"}, {"file_path": "a.txt", "content": None}):
        assert code_of(await files.use("write_file", given)) == "invalid_input"
        assert path.read_text() == "precious"

    assert (await files.write("a.txt", "")).output["bytes"] == 0
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("old", "content", "new"),
    [
        (b"a\r\nb\r\n", "x\ny\r\nz\n", b"x\r\ny\r\nz\r\n"),
        (b"a\rb\r", "x\ny\n", b"x\ry\r"),
        (b"a\nb\nc\r\n", "x\ny\r\n", b"x\ny\r\n"),
        (b"no line end", "x\r\ny\n", b"x\r\ny\n"),
        (b"\xef\xbb\xbfa\n", "x\n", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        (b"\0\r\n\r\n", "x\n", b"x\n"),
    ],
    ids=["crlf", "cr", "mostly lf", "none", "mark", "mark given twice", "binary"],
)
async def test_an_overwritten_text_keeps_its_line_endings_and_mark(
    files: Any, old: bytes, content: str, new: bytes
) -> None:
    path = files.folder / "a.txt"
    path.write_bytes(old)

    result = await files.write("a.txt", content)

    assert path.read_bytes() == new
    assert (result.output["bytes"], result.output["created"]) == (len(new), False)


async def test_mode_bits_survive(files: Any) -> None:
    path = files.folder / "run.sh"
    path.write_text("old")
    path.chmod(0o755)

    await files.write("run.sh", "new")

    assert stat.S_IMODE(path.stat().st_mode) == 0o755


async def test_a_file_is_replaced_and_one_with_other_names_is_written_in_place(files: Any) -> None:
    single, double = files.folder / "single", files.folder / "double"
    for path in (single, double):
        path.write_text("a longer text than what comes")
    (files.folder / "other").hardlink_to(double)
    inodes = single.stat().st_ino, double.stat().st_ino

    await files.write("single", "new")
    await files.write("double", "new")

    assert single.stat().st_ino != inodes[0]
    assert double.stat().st_ino == inodes[1]
    assert (files.folder / "other").read_text() == "new"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_a_failure_before_the_replacement_leaves_the_original_and_no_stray_file(
    files: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch, step: str, tool: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    (files.folder / "a.txt").write_text("original")
    monkeypatch.setattr(os, step, fail)

    given = {"file_path": "a.txt", "content": "new", "old_string": "original", "new_string": "new"}
    result = await files.use(tool, given)

    assert code_of(result) == "io_error"
    assert result.output.startswith("OS error writing file: ")
    assert (result.error["type"], result.error["errno"]) == ("OSError", 28)
    assert (files.folder / "a.txt").read_text() == "original"
    assert files.names == ["a.txt"]


@pytest.mark.parametrize("is_linked", [True, False], ids=["in place", "replaced"])
async def test_a_full_disk_leaves_the_original(files: Any, code_of: Any, is_linked: bool) -> None:
    path = files.folder / "a.txt"
    path.write_text("original")
    if is_linked:
        (files.folder / "b.txt").hardlink_to(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        result = await files.write("a.txt", "x" * 50_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert code_of(result) == "io_error"
    assert path.read_text() == "original"
    assert files.names == (["a.txt", "b.txt"] if is_linked else ["a.txt"])


async def test_cancellation_before_the_replacement_leaves_the_original_and_no_stray_file(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files.folder / "a.txt").write_text("original")
    reached, go_on, fsync = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        reached.set()
        go_on.wait(10)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    task = asyncio.create_task(files.write("a.txt", "new"))
    await asyncio.to_thread(reached.wait, 10)

    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (files.folder / "a.txt").read_text() == "original"
    assert files.names == ["a.txt"]


async def test_a_slow_disk_does_not_keep_others_waiting(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    others_ran, fsync = threading.Event(), os.fsync
    waited: list[bool] = []

    def slow(descriptor: int) -> None:
        waited.append(others_ran.wait(10))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    task = asyncio.create_task(files.write("a.txt", "new"))
    await asyncio.sleep(0.01)
    others_ran.set()

    assert (await task).success
    assert waited == [True]


async def test_a_directory_cannot_be_written_to(files: Any, code_of: Any) -> None:
    (files.folder / "sub").mkdir()

    result = await files.write("sub", "x")

    assert (code_of(result), result.output) == ("is_directory", "Cannot write to directory: sub")


async def test_a_file_in_the_place_of_a_directory_is_an_error_that_says_so(files: Any, code_of: Any) -> None:
    (files.folder / "a").touch()

    result = await files.write("a/b", "x")

    assert code_of(result) == "io_error"
    assert "Not a directory" in result.output


async def test_too_much_content_is_refused_and_nothing_is_made(mount_files: Any, code_of: Any) -> None:
    files = await mount_files(max_write_bytes=4)

    assert code_of(await files.write("deep/a.txt", "12345")) == "too_large"
    assert files.names == []
    assert (await files.write("a.txt", "1234")).success


async def test_text_that_has_no_encoding_is_refused(files: Any, code_of: Any) -> None:
    assert code_of(await files.write("a.txt", "\ud800")) == "encoding_error"
    assert files.names == []


@pytest.mark.parametrize("path", ["a\0b", "\ud800", ""], ids=["null", "surrogate", "empty"])
async def test_a_path_that_can_be_none_is_invalid_input(files: Any, code_of: Any, path: str) -> None:
    for tool in files.tools:
        given = {"file_path": path, "content": "x", "old_string": "a", "new_string": "b"}
        assert code_of(await files.use(tool, given)) == "invalid_input"


async def test_a_write_is_announced_and_stands_even_when_nobody_can_be_told(
    files: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenSink:
        async def emit(self, event: str, data: Any) -> None:
            raise RuntimeError("the sink is broken")

    await files.write("a.txt", "hello")
    files.coordinator.hooks = BrokenSink()

    result = await files.write("b.txt", "hello")

    ((event, data),) = files.recorder.get_events()
    assert (event, data["path"], data["bytes"]) == ("artifact:write", str(files.folder / "a.txt"), 5)
    assert result.success
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("given", [{}, {"file_path": 3}, {"file_path": None}, [], "text", None, 7], ids=str)
async def test_input_that_is_none_fails_without_an_exception(files: Any, code_of: Any, given: Any) -> None:
    for tool in files.tools:
        assert code_of(await files.use(tool, given)) == "invalid_input"


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of somebody who is not root, while the test is that somebody."""
    with place_of_another_user() as folder, as_another_user():
        yield folder


def close(folder: Path) -> None:
    """Let nobody make a file there."""
    folder.chmod(0o555)


async def test_where_no_file_can_be_made_an_existing_one_is_written_in_place(unprivileged: Path) -> None:
    path = unprivileged / "a.txt"
    path.write_text("old and long")
    close(unprivileged)

    config = {"working_dir": str(unprivileged)}
    written = await WriteTool(config).execute({"file_path": "a.txt", "content": "one\n"})
    edited = await EditTool(config).execute({"file_path": "a.txt", "old_string": "one", "new_string": "two"})
    refused = await WriteTool(config).execute({"file_path": "b.txt", "content": "x"})

    assert written.success
    assert edited.success
    assert path.read_text() == "two\n"
    assert refused.error is not None
    assert (refused.error["code"], refused.error["errno"]) == ("io_error", 13)


async def test_a_file_that_may_not_be_written_is_not_replaced_either(unprivileged: Path) -> None:
    path = unprivileged / "a.txt"
    path.write_text("read-only")
    path.chmod(0o444)

    result = await WriteTool({"working_dir": str(unprivileged)}).execute({"file_path": "a.txt", "content": "x"})

    assert not result.success
    assert path.read_text() == "read-only"
    assert os.listdir(unprivileged) == ["a.txt"]  # noqa: PTH208 - a path of its own would be a blocking call
