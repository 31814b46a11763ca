"""`read_file`: windows of numbered lines, directories, binary data, odd encodings."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_filesystem import ReadTool
from hypothesis import given
from hypothesis import strategies as st


async def test_a_window_has_exactly_its_numbered_lines_and_says_where_to_go_on(files: Any) -> None:
    (files.folder / "ten.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))

    result = await files.read("ten.txt", offset=5, limit=3)

    assert result.output == {
        "file_path": str(files.folder / "ten.txt"),
        "content": "     5\tline 5\n     6\tline 6\n     7\tline 7",
        "total_lines": 10,
        "lines_read": 3,
        "offset": 5,
        "next_offset": 8,
    }


async def test_a_whole_file_has_no_next_offset(files: Any) -> None:
    (files.folder / "a.txt").write_text("a\nb")

    result = await files.read("a.txt")

    assert result.output["content"] == "     1\ta\n     2\tb"
    assert result.output["total_lines"] == 2
    assert "next_offset" not in result.output


async def test_an_empty_file_is_said_to_be_empty(files: Any) -> None:
    (files.folder / "empty").touch()

    result = await files.read("empty")

    assert (result.output["content"], result.output["total_lines"], result.output["lines_read"]) == ("", 0, 0)
    assert "empty" in result.output["warning"]


async def test_an_offset_past_the_end_is_answered_with_a_warning(files: Any) -> None:
    (files.folder / "a.txt").write_text("a\n")

    result = await files.read("a.txt", offset=9)

    assert result.success
    assert (result.output["lines_read"], result.output["total_lines"]) == (0, 1)
    assert "past its end" in result.output["warning"]


async def test_offset_zero_counts_as_one(files: Any) -> None:
    (files.folder / "a.txt").write_text("a\nb\n")

    assert (await files.read("a.txt", offset=0)).output == (await files.read("a.txt", offset=1)).output


@pytest.mark.parametrize(
    "given", [{"offset": -1}, {"limit": 0}, {"limit": -3}, {"offset": "2"}, {"limit": True}, {"offset": 1.5}], ids=str
)
async def test_numbers_that_make_no_window_are_invalid_input(files: Any, code_of: Any, given: dict[str, Any]) -> None:
    (files.folder / "a.txt").write_text("a\nb\n")

    assert code_of(await files.read("a.txt", **given)) == "invalid_input"


async def test_an_explicit_null_and_unknown_keys_count_as_absent(files: Any) -> None:
    (files.folder / "a.txt").write_text("a\n")

    result = await files.read("a.txt", offset=None, limit=None, _tool_call_id="x")

    assert result.output["lines_read"] == 1


async def test_what_is_missing_is_named_as_it_was_given(files: Any, code_of: Any) -> None:
    (files.folder / "file").touch()

    for path in ("no/such.txt", "file/inner"):
        result = await files.read(path)
        assert code_of(result) == "not_found"
        assert result.output == f"Path not found: {path}"


async def test_a_directory_is_listed_directories_first(files: Any) -> None:
    for name in ("b.txt", "a.txt"):
        (files.folder / name).touch()
    (files.folder / "z").mkdir()

    result = await files.read(".")

    assert result.output["content"].splitlines()[2:] == ["  DIR  z", "  FILE a.txt", "  FILE b.txt"]
    assert result.output["content"].startswith("Directory: ")
    assert (result.output["is_directory"], result.output["entry_count"]) == (True, 3)


async def test_a_long_listing_is_cut_with_a_note(mount_files: Any) -> None:
    files = await mount_files(max_listing_entries=2)
    for number in range(5):
        (files.folder / f"{number}").touch()
    (files.folder / "loop").symlink_to("loop")

    result = await files.read(files.folder)

    assert (result.output["truncated"], result.output["entry_count"]) == (True, 6)
    assert result.output["content"].endswith("4 more entries are not shown")


async def test_a_binary_file_is_recognised_not_shown(files: Any) -> None:
    (files.folder / "a.bin").write_bytes(b"text" + bytes(1) + b"more")

    result = await files.read("a.bin")

    assert result.success
    assert "cannot display as text" in result.output["content"]
    assert ".bin" in result.output["content"]
    assert (result.output["is_binary"], result.output["size_bytes"]) == (True, 9)
    assert files.recorder.get_events() == []


async def test_a_byte_order_mark_is_not_shown(files: Any) -> None:
    (files.folder / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")

    result = await files.read("a.txt")

    assert result.output["content"] == "     1\ta\n     2\tb"
    assert "encoding" not in result.output


async def test_what_is_not_utf8_is_read_as_latin1_and_says_so(files: Any) -> None:
    (files.folder / "a.txt").write_bytes(b"caf\xe9\n\xc3")

    result = await files.read("a.txt")

    assert result.output["content"] == "     1\tcafé\n     2\tÃ"
    assert result.output["encoding"] == "latin-1"


async def test_lines_end_at_newlines_and_nothing_else(files: Any) -> None:
    (files.folder / "a.txt").write_bytes("a\rb\x0bc\x85d\u2028e\r\nf\n".encode())

    result = await files.read("a.txt")

    assert result.output["total_lines"] == 2
    assert result.output["content"] == "     1\ta\rb\x0bc\x85d\u2028e\n     2\tf"


async def test_long_lines_are_cut_with_a_mark(files: Any) -> None:
    (files.folder / "a.txt").write_text("é" * 2000 + "\n" + "é" * 9000 + "\nend\n", encoding="utf-8")

    lines = (await files.read("a.txt")).output["content"].split("\n")

    assert lines == [f"     1\t{'é' * 2000}", f"     2\t{'é' * 2000}... [truncated]", "     3\tend"]


async def test_a_huge_file_is_read_in_windows_and_not_counted_to_its_end(mount_files: Any) -> None:
    files = await mount_files(max_read_bytes=1000)
    (files.folder / "huge.txt").write_text("".join(f"line {n}\n" for n in range(1, 200_001)))

    start, middle, end = [
        (await files.read("huge.txt", offset=offset, limit=2)).output for offset in (1, 150_000, 200_000)
    ]

    assert start["content"] == "     1\tline 1\n     2\tline 2"
    assert (start["total_lines"], start["truncated"], start["next_offset"]) == (None, True, 3)
    assert middle["content"] == "150000\tline 150000\n150001\tline 150001"
    assert (end["content"], end["total_lines"]) == ("200000\tline 200000", 200_000)
    assert "next_offset" not in end


async def test_no_limit_makes_a_window_larger_than_the_budget(mount_files: Any) -> None:
    files = await mount_files(max_read_bytes=1000)
    (files.folder / "huge.txt").write_text("0123456789\n" * 10_000)

    result = await files.read("huge.txt", limit=10_000)

    assert result.output["lines_read"] == 91
    assert result.output["next_offset"] == 92


@given(text=st.text(alphabet="ab\r\n\té€", max_size=200), offset=st.integers(1, 12), limit=st.integers(1, 12))
async def test_windows_show_the_lines_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str, offset: int, limit: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "window.txt"
    path.write_bytes(text.encode())
    expected = [line.removesuffix("\r") for line in text.split("\n")[:-1]] + [text.split("\n")[-1]]
    expected = expected if expected[-1] else expected[:-1]

    output = (await ReadTool({}).execute({"file_path": str(path), "offset": offset, "limit": limit})).output

    shown = [line.split("\t", 1)[1] for line in output["content"].split("\n")] if output["content"] else []
    assert shown == expected[offset - 1 : offset - 1 + limit]
    assert output["total_lines"] == len(expected)
    assert output.get("next_offset", len(expected) + 1) == min(offset + limit, len(expected) + 1) or not shown


@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file"])
async def test_pipes_sockets_and_devices_are_refused_without_waiting_for_them(
    files: Any, code_of: Any, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.folder)  # the address of a socket is short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        (files.folder / "null").symlink_to("/dev/null")
        for name in ("pipe", "socket"):
            given = {"file_path": name, "content": "x", "old_string": "a", "new_string": "b"}
            assert code_of(await files.use(tool, given)) == "not_regular_file"
    if tool == "read_file":
        assert code_of(await files.read("null")) == "not_regular_file"


async def test_a_text_read_is_announced(files: Any) -> None:
    (files.folder / "a.txt").write_text("hello\n")

    await files.read("a.txt")

    (event, data) = files.recorder.get_events()[0]
    assert event == "artifact:read"
    assert (data["path"], data["bytes"]) == (str(files.folder / "a.txt"), 6)


async def test_a_mention_is_resolved_by_the_capability_and_checked_like_any_path(
    mount_files: Any, code_of: Any, tmp_path: Path
) -> None:
    class Resolver:
        def resolve(self, mention: str) -> Path | None:
            return {"@docs:a": tmp_path / "work/a.txt", "@docs:out": tmp_path / "out.txt"}.get(mention)

    files = await mount_files(allowed_read_paths=["."])
    (files.folder / "a.txt").write_text("hello\n")
    (tmp_path / "out.txt").write_text("secret\n")
    without = await files.read("@docs:a")
    files.coordinator.register_capability("mention_resolver", Resolver())

    found, missing, outside = [await files.read(path) for path in ("@docs:a", "@docs:none", "@docs:out")]

    assert code_of(without) == "capability_missing"
    assert "mention_resolver" in without.output
    assert found.output["content"] == "     1\thello"
    assert (code_of(missing), missing.output) == ("not_found", "@mention not found: @docs:none")
    assert code_of(outside) == "access_denied"


async def test_a_line_that_does_not_end_is_followed_no_further_than_the_limit(mount_files: Any) -> None:
    files = await mount_files(max_read_bytes=100_000)
    path = files.folder / "endless.txt"
    path.write_text("a" * 20_000)
    with path.open("r+b") as file:
        file.truncate(1 << 40)

    result = await files.read("endless.txt")

    assert result.success
    assert (result.output["lines_read"], result.output["truncated"]) == (1, True)
