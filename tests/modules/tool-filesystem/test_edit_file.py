"""`edit_file`: exact matches, and nothing changed but the match."""

import asyncio
import stat
from typing import Any

import pytest
from amplifier_module_tool_filesystem import EditTool
from hypothesis import given
from hypothesis import strategies as st


async def test_the_only_occurrence_is_replaced(files: Any) -> None:
    path = files.folder / "a.txt"
    path.write_text("one\ntwo\nthree\n")

    result = await files.edit("a.txt", "two", "zwei")

    assert path.read_text() == "one\nzwei\nthree\n"
    assert result.output == {
        "file_path": str(path),
        "replacements_made": 1,
        "first_line": 2,
        "bytes_written": path.stat().st_size,
    }
    assert [event for event, _ in files.recorder.get_events()] == ["artifact:write"]


async def test_replace_all_replaces_every_occurrence(files: Any) -> None:
    (files.folder / "a.txt").write_text("x\ny x\nx\n")

    result = await files.edit("a.txt", "x", "z", replace_all=True)

    assert (files.folder / "a.txt").read_text() == "z\ny z\nz\n"
    assert (result.output["replacements_made"], result.output["first_line"]) == (3, 1)


async def test_several_occurrences_are_counted_and_located_instead_of_replaced(files: Any, code_of: Any) -> None:
    (files.folder / "a.txt").write_text("x\ny x\n\nx\n")

    result = await files.edit("a.txt", "x", "z")

    assert code_of(result) == "not_unique"
    assert (result.error["occurrences"], result.error["old_string"]) == (3, "x")
    assert result.error["line_numbers"] == [1, 2, 4]
    assert "3" in result.output
    assert (files.folder / "a.txt").read_text() == "x\ny x\n\nx\n"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("def f():\n  return 1", "Line 1 has the same words with different white space"),
        ("     1\tdef f():\n     2\t    return 1", "line numbers"),
        ("    return l", "The nearest line is 2: return 1"),
        ("def f():\n    raise", "what follows it differs"),
    ],
)
async def test_a_text_that_is_not_there_is_answered_with_a_hint(files: Any, code_of: Any, old: str, hint: str) -> None:
    (files.folder / "a.py").write_text("def f():\n    return 1\n")

    result = await files.edit("a.py", old, "x")

    assert code_of(result) == "not_found"
    assert result.output == "old_string not found in file: a.py"
    assert result.error["old_string"] == old
    assert hint in result.error["hint"]


async def test_checks_come_in_their_order(files: Any, code_of: Any) -> None:
    (files.folder / "a.bin").write_bytes(b"a\0b")
    (files.folder / "sub").mkdir()

    answers = [
        await files.edit("", "", ""),
        await files.edit("/outside", "", ""),
        await files.edit("/outside", "a", "a"),
        await files.edit("/outside", "a", "b"),
        await files.edit("none/a.txt", "a", "b"),
        await files.edit("sub", "a", "b"),
        await files.edit("a.bin", "a", "b"),
    ]

    assert [code_of(answer) for answer in answers] == [
        "invalid_input",
        "invalid_input",
        "invalid_input",
        "access_denied",
        "not_found",
        "is_directory",
        "binary_file",
    ]
    assert [answer.output for answer in answers[:2]] == ["file_path is required", "old_string is required"]
    assert answers[4].output == "File not found: none/a.txt"
    assert files.names == ["a.bin", "sub"], "an edit makes no directory"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\n", "b", "c\nd", b"a\r\nc\r\nd\r\n"),
        (b"a\r\nb\r\n", "a\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\rb\rc\r", "a\nb", "x\ny", b"x\ry\rc\r"),
        (b"a\r\nb\nc\r\n", "b", "x", b"a\r\nx\r\nc\r\n"),
        (b"a\nb\rc\nd\n", "d", "x", b"a\nb\rc\nx\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        (b"caf\xe9\n", "caf\u00e9", "th\u00e9", b"th\xe9\n"),
        (b"no end", "end", "line end", b"no line end"),
    ],
    ids=["crlf", "crlf across", "cr", "mixed converges", "stray cr stays", "mark", "latin-1", "no line end"],
)
async def test_an_edit_keeps_line_endings_mark_and_encoding(
    files: Any, before: bytes, old: str, new: str, after: bytes
) -> None:
    path = files.folder / "a.txt"
    path.write_bytes(before)

    result = await files.edit("a.txt", old, new)

    assert result.success, result.output
    assert path.read_bytes() == after
    assert result.output["bytes_written"] == len(after)


async def test_every_line_of_a_crlf_file_is_still_crlf_and_mode_0755_is_preserved(files: Any) -> None:
    path = files.folder / "a.sh"
    path.write_bytes(b"a\r\nb\r\n")
    path.chmod(0o755)

    await files.edit("a.sh", "b", "changed")

    assert path.read_bytes() == b"a\r\nchanged\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


async def test_a_character_that_the_files_encoding_lacks_is_refused(files: Any, code_of: Any) -> None:
    (files.folder / "a.txt").write_bytes(b"caf\xe9\n")

    result = await files.edit("a.txt", "caf", "€")

    assert code_of(result) == "encoding_error"
    assert "latin-1" in result.output
    assert (files.folder / "a.txt").read_bytes() == b"caf\xe9\n"


async def test_what_is_too_large_to_edit_is_refused(mount_files: Any, code_of: Any) -> None:
    files = await mount_files(max_write_bytes=10)
    (files.folder / "large").write_text("x" * 11)
    (files.folder / "grows").write_text("x" * 9)

    assert code_of(await files.edit("large", "xx", "y")) == "too_large"
    assert code_of(await files.edit("grows", "xxxxxxxxx", "y" * 11)) == "too_large"


async def test_fifty_parallel_edits_of_one_file_all_take_effect(mount_files: Any) -> None:
    one, other = await mount_files(), await mount_files()
    path = one.folder / "a.txt"
    path.write_text("".join(f"<{number}>\n" for number in range(50)))
    (one.folder / "link").symlink_to("a.txt")

    results = await asyncio.gather(
        *((one, other)[n % 2].edit(("a.txt", "link")[n % 3 == 0], f"<{n}>", f"[{n}]") for n in range(50))
    )

    assert all(result.success for result in results)
    assert path.read_text() == "".join(f"[{number}]\n" for number in range(50))
    assert (one.folder / "link").is_symlink()


@given(
    before=st.text(alphabet="ab\n", max_size=20),
    after=st.text(alphabet="ab\n", max_size=20),
    line_end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    new=st.text(alphabet="cd\n", max_size=6),
)
async def test_an_edit_changes_its_match_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str, line_end: str, mark: bytes, new: str
) -> None:
    folder = tmp_path_factory.getbasetemp()

    def stored(text: str) -> bytes:
        return mark + text.replace("\n", line_end).encode()

    ends = "\n" * 30  # they make the line ending the dominant one
    (folder / "edited.txt").write_bytes(stored(before + "MATCH" + after + ends))

    result = await EditTool({"working_dir": str(folder)}).execute(
        {"file_path": "edited.txt", "old_string": "MATCH", "new_string": new}
    )

    assert result.success
    assert (folder / "edited.txt").read_bytes() == stored(before + new + after + ends)


@pytest.mark.parametrize(
    "filling", ["a ", "a" * 50 + "\n", " \n", "word " * 20 + "\n"], ids=["words", "lines", "space", "prose"]
)
async def test_a_hint_about_a_large_text_does_not_keep_the_loop_waiting(files: Any, filling: str) -> None:
    (files.folder / "large.txt").write_text((filling * (400_000 // len(filling)))[:400_000])
    wanted = "a " * 1500 + "b"
    pauses: list[float] = []

    async def watch() -> None:
        clock = asyncio.get_running_loop().time
        while True:
            before = clock()
            await asyncio.sleep(0.01)
            pauses.append(clock() - before)

    watching = asyncio.create_task(watch())
    result = await files.edit("large.txt", wanted, "c")
    watching.cancel()

    assert not result.success
    assert max(pauses, default=0) < 2.0  # where every place is tried it is many seconds
