"""`grep`: what is searched, what is found, what is reported."""

import json
import os
from pathlib import Path
from typing import Any

import pytest


async def files_of(search: Any, pattern: str, **given: Any) -> list[str]:
    result = await search.grep(pattern, **given)
    assert result.success, result.output
    found: list[str] = search.relative(result.output["files"])
    return found


async def test_by_default_the_files_that_match_are_listed_in_order_of_their_paths(search: Any) -> None:
    for path in ("b.txt", "a/z.txt", "a.txt", "a/b/c.txt", "a-b.txt"):
        search.write(path)
    search.write("none.txt", "nothing")

    result = await search.grep("needle")

    assert search.relative(result.output.pop("files")) == ["a/b/c.txt", "a/z.txt", "a-b.txt", "a.txt", "b.txt"]
    assert result.output == {
        "pattern": "needle",
        "output_mode": "files_with_matches",
        "total_matches": 5,
        "matches_count": 5,
    }


async def test_content_has_lines_with_their_numbers_and_without_trailing_space(search: Any) -> None:
    search.write("a.txt", "one\nneedle \t\r\n  two needle\n")

    result = await search.grep("needle", output_mode="content")
    bare = await search.grep("needle", output_mode="content", __n=False)

    path = str(search.folder / "a.txt")
    assert result.output["results"] == [
        {"file": path, "line_number": 2, "content": "needle"},
        {"file": path, "line_number": 3, "content": "  two needle"},
    ]
    assert bare.output["results"][0] == {"file": path, "content": "needle"}
    assert (result.output["total_matches"], result.output["matches_count"]) == (2, 2)


async def test_context_comes_with_each_match_and_says_which_lines_match(search: Any) -> None:
    search.write("a.txt", "1\n2\nx 3\nx 4\n5\n6\n")

    around = await search.grep("x", output_mode="content", __C=1, __A=9)
    after = await search.grep("x", output_mode="content", __A=1)

    assert around.output["results"][0]["context"] == [
        {"line_number": 2, "content": "2", "is_match": False},
        {"line_number": 3, "content": "x 3", "is_match": True},
        {"line_number": 4, "content": "x 4", "is_match": True},
    ]
    assert [line["line_number"] for line in after.output["results"][1]["context"]] == [4, 5]
    assert "context" not in (await search.grep("x", output_mode="content")).output["results"][0]


async def test_counts_are_of_matching_lines(search: Any) -> None:
    search.write("a.txt", "x x x\nx\n\n")
    search.write("b.txt", "x")

    result = await search.grep("x", output_mode="count", head_limit=1)

    assert result.output["counts"] == {str(search.folder / "a.txt"): 2}
    assert (result.output["total_matches"], result.output["matches_count"]) == (3, 2)
    assert (result.output["results_capped"], result.output["next_offset"]) == (True, 1)


async def test_single_file_count_works(search: Any) -> None:
    search.write("with:colon.txt", "x\nx\n")

    result = await search.grep("x", output_mode="count", path="with:colon.txt")

    assert result.output["counts"] == {str(search.folder / "with:colon.txt"): 2}


async def test_across_lines_a_match_is_reported_at_its_first_line_with_all_its_lines(search: Any) -> None:
    search.write("a.txt", "a\r\nstart\r\nmiddle\r\nend start end\r\nz\r\n")

    result = await search.grep("start.*?end", output_mode="content", multiline=True, __B=1)
    counted = await search.grep("start.*?end", output_mode="count", multiline=True)

    first, second = result.output["results"]
    assert (first["line_number"], first["content"]) == (2, "start\nmiddle\nend start end")
    assert [line["line_number"] for line in first["context"]] == [1, 2, 3, 4]
    assert (second["line_number"], second["content"]) == (4, "end start end")
    assert counted.output["total_matches"] == 2


async def test_empty_lines_can_be_found_across_lines(search: Any) -> None:
    search.write("a.txt", "a\n\nb\n\n")

    result = await search.grep("^$", output_mode="content", multiline=True)

    assert [found["line_number"] for found in result.output["results"]] == [2, 4]


async def test_windows_go_through_all_matches_once(search: Any) -> None:
    for name in "abc":
        search.write(f"{name}.txt", f"x {name}1\nx {name}2\n")
    found: list[str] = []
    given: dict[str, Any] = {"offset": 0}

    while given["offset"] is not None:
        output = (await search.grep("x", output_mode="content", head_limit=4, **given)).output
        found += [entry["content"] for entry in output["results"]]
        given["offset"] = output.get("next_offset")

    assert found == ["x a1", "x a2", "x b1", "x b2", "x c1", "x c2"]
    assert output["total_matches"] == 6


async def test_limits_are_those_of_the_mode_and_zero_is_none(search: Any) -> None:
    search.write("a.txt", "x\n" * 7)
    config = {"default_limits": {"content": 3}}

    capped = await search.grep("x", output_mode="content", config=config)
    complete = await search.grep("x", output_mode="content", config=config, head_limit=0)

    assert (capped.output["matches_count"], capped.output["results_capped"]) == (3, True)
    assert (complete.output["matches_count"], "results_capped" in complete.output) == (7, False)


@pytest.mark.parametrize("pattern", ["--pre=sh", "-e", "-", "--", "-f/etc/passwd"])
async def test_a_pattern_that_begins_with_a_dash_is_a_literal_search(search: Any, pattern: str) -> None:
    search.write("a.txt", f"before {pattern} after\n")
    search.write("b.txt", "nothing\n")

    assert await files_of(search, pattern) == ["a.txt"]


async def test_a_file_name_that_begins_with_a_dash_is_a_file(search: Any) -> None:
    search.write("--files", "needle\n")

    assert await files_of(search, "needle") == ["--files"]
    assert await files_of(search, "needle", path="--files") == ["--files"]


async def test_exclusions_count_below_the_searched_path_only(search: Any) -> None:
    search.write("build/proj/src/a.txt")
    search.write("build/proj/build/b.txt")

    inside = await files_of(search, "needle", path="build/proj")
    everything = await files_of(search, "needle", path="build/proj", include_ignored=True)

    assert inside == ["build/proj/src/a.txt"]
    assert everything == ["build/proj/build/b.txt", "build/proj/src/a.txt"]
    assert await files_of(search, "needle") == []


async def test_hidden_files_are_skipped_unless_they_are_the_searched_path(search: Any) -> None:
    search.write(".hidden/a.txt")
    search.write(".env", "needle")
    search.write("b.txt")

    assert await files_of(search, "needle") == ["b.txt"]
    assert await files_of(search, "needle", glob="*") == ["b.txt"]
    assert await files_of(search, "needle", path=".hidden") == [".hidden/a.txt"]
    assert await files_of(search, "needle", path=".env") == [".env"]
    assert len(await files_of(search, "needle", include_ignored=True)) == 3


async def test_ignore_files_count_within_a_repository(search: Any) -> None:
    search.write(".gitignore", "*.log\n/out/\n!keep.log\ndata/**/big\n")
    search.write("sub/.gitignore", "local.txt\n")
    for path in ("a.log", "keep.log", "out/a.txt", "sub/out/a.txt", "sub/local.txt", "local.txt", "data/x/y/big"):
        search.write(path)
    outside = await files_of(search, "needle")
    (search.folder / ".git").mkdir()

    inside = await files_of(search, "needle")

    assert len(outside) == 7
    assert inside == ["keep.log", "local.txt", "sub/out/a.txt"]
    assert await files_of(search, "needle", path="sub") == ["sub/out/a.txt"]
    assert len(await files_of(search, "needle", include_ignored=True)) == 7
    assert len(await files_of(search, "needle", config={"respect_gitignore": False})) == 7


async def test_a_nested_repository_has_rules_of_its_own(search: Any) -> None:
    (search.folder / ".git").mkdir()
    search.write(".gitignore", "*.txt\n")
    search.write(".ignore", "*.md\n!a.txt\n")
    search.write("nested/.git/HEAD", "")
    for path in ("a.txt", "b.txt", "nested/b.txt", "nested/c.md"):
        search.write(path)

    assert await files_of(search, "needle") == ["a.txt", "nested/b.txt"]


async def test_binary_and_large_files_are_skipped_unless_they_are_named(search: Any) -> None:
    search.write("binary", b"needle\0\n")
    search.write("late", b"needle\n" + b"x" * 9000 + b"\0\n")
    search.write("large", "needle\n" + "x" * 20_000)
    search.write("wide", "needle\n".encode("utf-16"))
    config = {"max_file_size": 15_000}

    assert await files_of(search, "needle", config=config) == ["late"]
    for name in ("binary", "large", "wide"):
        assert await files_of(search, "needle", config=config, path=name) == [name]


async def test_links_to_files_are_searched_and_links_to_directories_are_not(search: Any, tmp_path: Path) -> None:
    search.write("real/a.txt")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("needle")
    (search.folder / "file").symlink_to("real/a.txt")
    (search.folder / "dir").symlink_to("real")
    (search.folder / "out").symlink_to(tmp_path / "outside/secret.txt")
    (search.folder / "broken").symlink_to("nowhere")

    free = await files_of(search, "needle")
    closed = await files_of(search, "needle", config={"allowed_paths": ["."]})

    assert free == ["file", "out", "real/a.txt"]
    assert closed == ["file", "real/a.txt"]
    assert await files_of(search, "needle", path="dir") == ["dir/a.txt"], "named, it is searched"


async def test_a_glob_without_a_slash_is_for_names_and_with_one_from_the_root(search: Any) -> None:
    for path in ("a.py", "src/b.py", "src/deep/c.py", "src/d.ts", "src/e.tsx", "x[1].py"):
        search.write(path)

    expected = {
        "*.py": ["a.py", "src/b.py", "src/deep/c.py", "x[1].py"],
        "src/*.py": ["src/b.py"],
        "/src/*.py": None,
        "src/**/*.py": ["src/b.py", "src/deep/c.py"],
        "**/*.ts*": ["src/d.ts", "src/e.tsx"],
        "*.{ts,tsx}": ["src/d.ts", "src/e.tsx"],
        "[ab].py": ["a.py", "src/b.py"],
        "[!a].py": ["src/b.py", "src/deep/c.py"],
        "?.py": ["a.py", "src/b.py", "src/deep/c.py"],
        "x\\[1\\].py": ["x[1].py"],
        "src/": ["src/b.py", "src/d.ts", "src/deep/c.py", "src/e.tsx"],
        "{src/d.ts,a.py}": ["a.py", "src/d.ts"],
    }
    for glob, files in expected.items():
        result = await search.grep("needle", glob=glob)
        assert (search.relative(result.output["files"]) if result.success else None) == files, glob


async def test_types_are_known_by_several_names(search: Any, code_of: Any) -> None:
    for path in ("a.py", "b.ts", "c.tsx", "d.rs", "e.jsx", "f.yml", "g.cc"):
        search.write(path)

    expected = {
        "py": ["a.py"],
        "Python": ["a.py"],
        "tsx": ["b.ts", "c.tsx"],
        "rs": ["d.rs"],
        "javascript": ["e.jsx"],
        "yml": ["f.yml"],
        "C++": ["g.cc"],
    }
    for name, files in expected.items():
        assert await files_of(search, "needle", type=name) == files
    assert await files_of(search, "needle", type="ts", glob="b.*") == ["b.ts"]
    unknown = await search.grep("needle", type="cobol")
    assert code_of(unknown) == "invalid_input"
    assert unknown.output.startswith("Unrecognized file type: 'cobol'. Valid types: c, cpp, ")


async def test_one_long_line_is_cut_with_a_mark(search: Any) -> None:
    search.write("a.js", "x" * 3000 + "\n")

    (found,) = (await search.grep("xx", output_mode="content")).output["results"]

    assert found["content"] == "x" * 2000 + "... [truncated]"
    whole = await search.grep("xx", output_mode="content", config={"max_line_chars": 0})
    assert len(whole.output["results"][0]["content"]) == 3000


@pytest.mark.parametrize("given", [{}, {"__C": 3}])
@pytest.mark.parametrize("line", ["needle and more\n", "needle " + "ü" * 5000 + "\n"], ids=["many", "long"])
async def test_the_list_of_lines_ends_where_its_bytes_do(search: Any, given: dict[str, Any], line: str) -> None:
    search.write("a.txt", line * 100)

    result = await search.grep("needle", output_mode="content", config={"max_result_bytes": 2000}, **given)

    assert len(json.dumps(result.output["results"])) <= 2100
    assert result.output["results"]
    assert (result.output["results_truncated_bytes"], result.output["results_capped"]) == (True, True)
    assert result.output["total_matches"] == 100
    assert result.output["next_offset"] == len(result.output["results"])


async def test_context_without_end_is_the_file_as_far_as_there_is_room(search: Any) -> None:
    search.write("a.txt", "1\n2\nneedle\n4\n5\n")
    search.write("b.txt", "\n" * 50_000 + "needle\n" + "\n" * 50_000)

    whole = await search.grep("needle", path="a.txt", output_mode="content", __C=10**12)
    large = await search.grep("needle", path="b.txt", output_mode="content", __C=10**12)

    assert [line["line_number"] for line in whole.output["results"][0]["context"]] == [1, 2, 3, 4, 5]
    assert large.output["results"] == [
        {"file": str(search.folder / "b.txt"), "line_number": 50_001, "content": "needle"}
    ]
    assert large.output["results_truncated_bytes"] is True


async def test_home_paths_work(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(search.folder))
    search.write("proj/a.txt")

    assert await files_of(search, "needle", path="~/proj") == ["proj/a.txt"]


async def test_paths_are_reported_as_they_were_reached(search: Any) -> None:
    search.write("real/a.txt")
    (search.folder / "link").symlink_to("real")

    result = await search.grep("needle", path="real/../link")

    assert result.output["files"] == [str(search.folder / "real/../link/a.txt")]


async def test_a_name_that_is_no_text_is_reported_all_the_same(search: Any) -> None:
    (search.folder / os.fsdecode(b"caf\xe9\n.txt")).write_text("needle")

    result = await search.grep("needle")

    assert result.output["files"] == [f"{search.folder}/caf\N{REPLACEMENT CHARACTER}\n.txt"]
    json.dumps(result.output, ensure_ascii=False).encode()


async def test_what_cannot_be_searched_for_is_refused_in_plain_words(search: Any, code_of: Any) -> None:
    search.write("a.txt")

    refused = {
        "invalid_input": [
            (await search.grep("("), "Invalid regex pattern: "),
            (await search.grep(""), "Pattern is required"),
            (await search.grep("x", __A=-1), "grep: '-A' must not be negative"),
            (await search.grep("x", offset=-1), "grep: 'offset' must not be negative"),
            (await search.grep("x", output_mode="all"), "grep: 'output_mode' must be one of"),
        ],
        "not_found": [(await search.grep("x", path="no/such"), "Path not found: no/such")],
        "access_denied": [
            (await search.grep("x", glob="../*"), "Access denied: "),
            (await search.grep("x", glob="/etc/*"), "Access denied: "),
            (await search.grep("x", glob="{a,../b}"), "Access denied: "),
        ],
    }

    for code, answers in refused.items():
        for answer, message in answers:
            assert code_of(answer) == code
            assert answer.output.startswith(message)
    assert search.events == []


@pytest.mark.parametrize(
    ("pattern", "detail"),
    [
        (r"(a)\1", "backreferences are not supported"),
        ("a(?!b)", "look-around, including look-ahead and look-behind, is not supported"),
        ("(", "unclosed group"),
        ("interface{}", "repetition quantifier expects a valid decimal"),
        (r"a\nb", r'the literal "\n" is not allowed in a regex; set multiline to match across lines'),
        (r"(?:\w{1000}){1000}", "exceeds size limit"),
        ("a\0b", r"it contains a null character; write \x00"),
        ("\ud800", "it contains half a character"),
    ],
)
async def test_a_pattern_that_ripgrep_does_not_know_is_refused_with_its_reason(
    search: Any, code_of: Any, pattern: str, detail: str
) -> None:
    search.write("a.txt")

    result = await search.grep(pattern)

    assert code_of(result) == "invalid_input"
    assert result.output.startswith("Invalid regex pattern: ")
    assert detail in result.output
    assert search.events == []


async def test_nothing_outside_the_allowed_paths_is_searched_or_named(
    search: Any, code_of: Any, tmp_path: Path
) -> None:
    secret = tmp_path / "secret-folder"
    secret.mkdir()
    (secret / "a.txt").write_text("needle")
    search.write("in/a.txt")
    (search.folder / "in/link").symlink_to(secret)
    config = {"allowed_paths": ["in"]}

    for path in (str(secret), "../secret-folder", "in/link", str(tmp_path / "none"), "."):
        result = await search.grep("needle", path=path, config=config)
        assert code_of(result) == "access_denied"
        assert "secret-folder" not in str(result.error)
    assert await files_of(search, "needle", path="in", config=config) == ["in/a.txt"]


async def test_a_pipe_is_not_waited_for(search: Any, code_of: Any) -> None:
    os.mkfifo(search.folder / "pipe")
    os.mkfifo(search.folder / ".gitignore")
    (search.folder / "linked").symlink_to("pipe")
    (search.folder / ".git").mkdir()
    search.write("a.txt")

    assert await files_of(search, "needle") == ["a.txt"]
    assert await files_of(search, "needle", include_ignored=True) == ["a.txt"]
    assert code_of(await search.grep("needle", path="pipe")) == "not_regular_file"


async def test_one_event_tells_about_a_search_that_had_started(search: Any) -> None:
    search.write("a.txt", "x\nx\n")

    await search.grep("x" * 300 + "|x", output_mode="content", head_limit=1)
    await search.grep("(")
    await search.grep("x", path="none")

    (event,) = search.events
    assert isinstance(event["duration_ms"], int)
    wanted = ("tool", "pattern", "root", "engine", "total", "returned", "success", "timed_out")
    assert {key: event[key] for key in wanted} == {
        "tool": "grep",
        "pattern": "x" * 200,
        "root": str(search.folder),
        "engine": "ripgrep",
        "total": 2,
        "returned": 1,
        "success": True,
        "timed_out": False,
    }


async def test_a_search_whose_time_is_over_says_so(search: Any, code_of: Any) -> None:
    search.write("a.txt")

    result = await search.grep("needle", config={"timeout": 1e-9})

    assert code_of(result) == "timeout"
    assert result.output.startswith("Search timed out")
