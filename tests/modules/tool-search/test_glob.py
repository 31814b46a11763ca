"""`glob`: files and directories by name."""

import itertools
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_search import GlobTool
from amplifier_module_tool_search.glob_pattern import GlobPattern, expand_braces, path_regex, split_components
from hypothesis import example, given
from hypothesis import strategies as st


async def found(search: Any, pattern: str, **given: Any) -> list[str]:
    result = await search.glob(pattern, **given)
    assert result.success, result.output
    return sorted(search.relative([match["path"] for match in result.output["matches"]]))


@pytest.fixture
def tree(search: Any) -> Any:
    for path in ("a.py", "b.txt", "src/c.py", "src/deep/d.py", "src/deep/d_test.py", ".github/e.yml", "build/f.py"):
        search.write(path)
    return search


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/c.py", "src/deep/d.py", "src/deep/d_test.py"]),
        ("src/**", ["src/c.py", "src/deep", "src/deep/d.py", "src/deep/d_test.py"]),
        ("src/*", ["src/c.py", "src/deep"]),
        ("src/*/", ["src/deep"]),
        ("**/deep", ["src/deep"]),
        ("*.{py,txt}", ["a.py", "b.txt"]),
        ("{src/*,*}.py", ["a.py", "src/c.py"]),
        ("[ab].*", ["a.py", "b.txt"]),
        ("[--a].*", ["a.py"]),
        ("[!--a].*", ["b.txt"]),
        ("[b-a].*", []),
        ("?.py", ["a.py"]),
        (".github/*", [".github/e.yml"]),
        ("./src/../a.py", ["a.py"]),
        ("none*", []),
    ],
)
async def test_patterns(tree: Any, pattern: str, expected: list[str]) -> None:
    assert await found(tree, pattern) == expected


async def test_a_result_says_what_was_found_newest_first(search: Any) -> None:
    for number, name in enumerate(["old.txt", "new.txt", "tie.txt"]):
        search.write(name, "x" * number)
        os.utime(search.folder / name, ns=(0, 2 if name == "new.txt" else 1))
    (search.folder / "sub").mkdir()
    os.utime(search.folder / "sub", ns=(0, 1))

    result = await search.glob("*")

    assert result.output == {
        "pattern": "*",
        "base_path": str(search.folder),
        "total_files": 4,
        "count": 4,
        "matches": [
            {"path": str(search.folder / "new.txt"), "type": "file", "size": 1},
            {"path": str(search.folder / "old.txt"), "type": "file", "size": 0},
            {"path": str(search.folder / "sub"), "type": "dir", "size": None},
            {"path": str(search.folder / "tie.txt"), "type": "file", "size": 2},
        ],
    }


async def test_types_are_files_directories_or_any(tree: Any) -> None:
    files, directories, both = [await found(tree, "**", type=kind) for kind in ("file", "dir", "any")]

    assert directories == [".github", "src", "src/deep"]
    assert sorted(files + directories) == both == await found(tree, "**")


async def test_excluded_directories_are_pruned_below_the_root_unless_asked_for(tree: Any) -> None:
    tree.write("build/proj/g.py")

    assert await found(tree, "build/*.py") == []
    assert await found(tree, "**/build") == []
    assert await found(tree, "build/*.py", include_ignored=True) == ["build/f.py"]
    assert await found(tree, "*.py", path="build/proj") == ["build/proj/g.py"]


async def test_exclude_matches_from_the_right(tree: Any) -> None:
    assert await found(tree, "**/*.py", exclude=["*_test.py", "src/*.py", ""]) == ["a.py", "src/deep/d.py"]


async def test_ignore_files_count_only_where_that_is_configured(tree: Any) -> None:
    tree.write(".git/HEAD", "")
    tree.write(".gitignore", "*.py\n")

    assert await found(tree, "*.py") == ["a.py"]
    assert await found(tree, "*.py", config={"respect_gitignore": True}) == []
    assert await found(tree, "*.py", config={"respect_gitignore": True}, include_ignored=True) == ["a.py"]


async def test_links_are_listed_and_not_descended(search: Any, tmp_path: Path) -> None:
    search.write("real/a.txt")
    (tmp_path / "outside").mkdir()
    for name, target in (("dir", "real"), ("file", "real/a.txt"), ("broken", "none"), ("out", tmp_path / "outside")):
        (search.folder / name).symlink_to(target)

    assert await found(search, "**") == ["dir", "file", "out", "real", "real/a.txt"]
    assert await found(search, "**", config={"allowed_paths": ["."]}) == ["dir", "file", "real", "real/a.txt"]


async def test_more_than_the_limit_is_counted_and_said(search: Any) -> None:
    for number in range(5):
        search.write(f"{number}.txt")

    result = await search.glob("*", config={"max_results": 2})

    output = result.output
    assert (output["total_files"], output["count"], len(output["matches"])) == (5, 2, 2)
    assert output["results_capped"] is True


@pytest.mark.parametrize("pattern", ["../*", "a/../../b", "{a,..}/b", "**/../x", "/etc/*", "/"])
async def test_a_pattern_that_leads_out_is_denied(tree: Any, code_of: Any, pattern: str) -> None:
    assert code_of(await tree.glob(pattern)) == "access_denied"
    assert tree.events == []


async def test_an_absolute_pattern_inside_is_split_at_its_plain_beginning(tree: Any, tmp_path: Path) -> None:
    result = await tree.glob(f"{tree.folder}/src/**/*.py")

    assert result.output["base_path"] == str(tree.folder / "src")
    assert result.output["total_files"] == 3
    assert await found(tree, f"{tree.folder}/a.py") == ["a.py"]
    allowed = {"allowed_paths": [str(tree.folder)]}
    assert await found(tree, f"{tree.folder}/*.py", path="src", config=allowed) == ["a.py"]


async def test_what_cannot_be_found_is_said_plainly(tree: Any, code_of: Any) -> None:
    assert code_of(await tree.glob("")) == "invalid_input"
    assert (await tree.glob("")).output == "Pattern is required"
    assert (await tree.glob("*", path="none")).output == "Path not found: none"
    assert code_of(await tree.glob("*", path="a.py")) == "invalid_input"
    assert code_of(await tree.glob("*", path="/etc", config={"allowed_paths": ["."]})) == "access_denied"
    assert code_of(await tree.glob("{a,b}" * 11)) == "invalid_input"
    assert code_of(await tree.glob("*", exclude=[1])) == "invalid_input"


async def test_when_the_time_is_over_what_was_found_so_far_is_given(
    search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.write("a.txt")
    search.write("sub/b.txt")
    os.utime(search.folder / "a.txt", ns=(0, 0))
    clock = itertools.count()
    scandir = os.scandir

    def slower(path: Any = ".") -> Any:
        if str(path).rstrip("/").endswith("sub"):
            monkeypatch.setattr("time.monotonic", lambda: 1e9 + next(clock))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", slower)
    result = await search.glob("**")

    assert not result.success
    assert result.error is not None
    assert result.error["code"] == "timeout"
    assert result.error["message"].startswith("Search timed out")
    assert result.output["partial"] is True
    assert search.relative([match["path"] for match in result.output["matches"]]) == ["sub", "a.txt"]
    assert search.events[0]["timed_out"] is True


async def test_one_event_tells_about_a_search(tree: Any) -> None:
    await tree.glob("**/*.py")

    (event,) = tree.events
    assert (event["tool"], event["engine"], event["root"]) == ("glob", None, str(tree.folder))
    assert (event["total"], event["returned"], event["success"]) == (4, 4, True)


components = st.sampled_from(["a", "b", "ab", "*", "?", "a*", "**", "[ab]", "[!a]"])
patterns = st.lists(components, min_size=1, max_size=4).map("/".join)
paths = st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=1, max_size=4)


def matches_naively(pattern: list[str], path: list[str]) -> bool:
    if not pattern or not path:
        return not pattern and not path
    if pattern[0] == "**":
        return (len(pattern) > 1 and matches_naively(pattern[1:], path)) or (
            matches_naively(pattern, path[1:]) or (pattern == ["**"] and len(path) == 1)
        )
    return fnmatchcase(path[0], pattern[0]) and matches_naively(pattern[1:], path[1:])


@given(pattern=patterns, path=paths)
def test_step_by_step_and_as_a_whole_a_pattern_means_the_same(pattern: str, path: list[str]) -> None:
    glob = GlobPattern(pattern)
    states, has_matched = glob.start, False
    for name in path:
        states, has_matched = glob.step(states, name)
    as_a_whole = re.fullmatch(path_regex(split_components(pattern)), "/".join(path)) is not None

    assert has_matched == as_a_whole == matches_naively(split_components(pattern), path)


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a{b,c}d", ["abd", "acd"]),
        ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{a}", ["a"]),
        ("{a,}", ["a", ""]),
        ("{a", ["{a"]),
        ("a}", ["a}"]),
        ("[{a,b}]", ["[{a,b}]"]),
        (r"\{a,b\}", [r"\{a,b\}"]),
    ],
)
def test_braces(pattern: str, expanded: list[str]) -> None:
    assert expand_braces(pattern) == expanded


@example("[?--]")
@example("[!--]")
@given(st.text(alphabet="ab*?[]{},!^-\\/.", max_size=12))
async def test_any_text_is_a_pattern_or_refused(tmp_path_factory: pytest.TempPathFactory, pattern: str) -> None:
    result = await GlobTool({"working_dir": str(tmp_path_factory.getbasetemp())}).execute({"pattern": pattern})

    assert result.success or (result.error and result.error["code"] in ("invalid_input", "access_denied"))
