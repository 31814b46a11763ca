"""`grep` on generated trees: it counts what a naive reader counts, and its modes agree with each other."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_search import GrepTool
from hypothesis import example, given, settings
from hypothesis import strategies as st

WORDS = ["foo", "Foo", "bar", "foo bar", "x", "", " ", "\t", "é", "É", "naïve", "a_b", "12", "٣", "e\u0301"]
RAW = [b"\xff", b"caf\xe9", b"\xe2\x82", b"\r", b"a\rb", b"\0"]
PATTERNS = [  # these mean the same to ripgrep and to Python
    *("foo", "Foo", r"\bfoo\b", "^foo", "foo$", "^$", "^", r"fo+\s?bar", "f.o", "[^f]oo", ".", r"\w+", r"\S$", r"\d"),
    *(
        "é",
        "[à-ï]",
        "(foo|bar) ?x?",
        "foo{2}",
        "(?i)foo",
        "(?i:É)",
        r"\Afoo",
        "x*",
        r"\Bo",
        "a_b|12",
        r"\x41",
        r"[\w-]+",
        "$",
    ),
]

words = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join).map(str.encode)
names = st.sampled_from(["a.py", "b.ts", "c", ".d", "x y.md", "[e].py", "-f.py", "build", "node_modules", "sub", "Sub"])
rules = st.lists(
    st.sampled_from(["*.py", "!a.py", "/sub", "sub/", "**/c", "sub/**", "!sub/b.ts", "[ab].*", "x\\ y.md", "#c"]),
    max_size=4,
)
options = st.fixed_dictionaries(
    {"pattern": st.sampled_from(PATTERNS)},
    optional={
        "-i": st.booleans(),
        "-C": st.integers(0, 2),
        "glob": st.sampled_from(["*.py", "sub/*", "**/*.{py,ts}", "[!a]*", "*", "sub/**"]),
        "type": st.sampled_from(["py", "ts", "md"]),
        "multiline": st.booleans(),
        "include_ignored": st.booleans(),
    },
)


def trees(lines: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[str, bytes]]:
    contents = st.builds(
        lambda mark, rows, end: mark + end.join(rows),
        st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
        st.lists(lines, max_size=6),
        st.sampled_from([b"\n", b"\r\n"]),
    )
    return st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), contents, min_size=1, max_size=8)


class World:
    """A folder that is made anew for each example."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, tree: dict[str, bytes], ignored: list[str], is_repository: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / ".git").mkdir(parents=True) if is_repository else self.folder.mkdir(parents=True)
        for path, content in tree.items():
            target = self.folder / path
            if any(parent.is_file() for parent in target.parents) or target.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        (self.folder / ".gitignore").write_text("\n".join(ignored))
        (self.folder / "link.py").symlink_to("a.py")
        (self.folder / "linked").symlink_to("sub")

    async def grep(self, **request: Any) -> dict[str, Any]:
        config = {"working_dir": str(self.folder), "max_file_size": 400, "max_result_bytes": 0}
        result = await GrepTool(config).execute(request)
        assert result.success, result.output
        output: dict[str, Any] = result.output
        return output


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("worlds").resolve() / "world")


def naive(folder: Path, pattern: str) -> dict[str, int]:
    """Count matching lines in the visible text files of a folder, in the simplest way there is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith(".") or part in ("build", "node_modules") for part in relative.parts[:-1]):
            continue
        if not path.is_file() or relative.name.startswith("."):
            continue
        data = path.read_bytes()
        if len(data) > 400:
            continue
        *ended, last = data.removeprefix(b"\xef\xbb\xbf").decode().split("\n")
        rows = [row.removesuffix("\r") for row in ended] + ([last] if last else [])
        if count := sum(bool(re.search(pattern, row)) for row in rows):
            found[str(path)] = count
    return found


@settings(max_examples=30)
@given(tree=trees(words), pattern=st.sampled_from(PATTERNS))
async def test_matching_lines_are_those_that_a_naive_reader_finds(
    world: World, tree: dict[str, bytes], pattern: str
) -> None:
    world.make(tree, [], is_repository=False)

    output = await world.grep(pattern=pattern, output_mode="count", head_limit=0)

    assert output["counts"] == naive(world.folder, pattern)


@settings(max_examples=20)
@example({"a.py": b"foo foo"}, [], False, {"pattern": "foo", "multiline": True})
@example({"a.py": b"foo\nfoo"}, [], False, {"pattern": "^", "multiline": True})
@example({"a.py": b"foo"}, [], False, {"pattern": "$", "multiline": True})
@given(tree=trees(words | st.sampled_from(RAW)), ignored=rules, is_repository=st.booleans(), asked=options)
async def test_the_modes_agree(
    world: World, tree: dict[str, bytes], ignored: list[str], is_repository: bool, asked: dict[str, Any]
) -> None:
    world.make(tree, ignored, is_repository)

    counts = (await world.grep(**asked, output_mode="count", head_limit=0))["counts"]
    files = (await world.grep(**asked, head_limit=0))["files"]
    content = await world.grep(**asked, output_mode="content", head_limit=0)
    window = await world.grep(**asked, output_mode="content", head_limit=2, offset=1)

    assert list(counts) == files
    assert [entry["file"] for entry in content["results"]] == [file for file in files for _ in range(counts[file])]
    assert content["total_matches"] == window["total_matches"] == len(content["results"])
    assert window["results"] == content["results"][1:3]
