"""Both engines give the same answers, and each gives what a naive reader finds."""

import asyncio
import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_search import GrepTool
from amplifier_module_tool_search.regex_syntax import compile_pattern, required_text, translate
from hypothesis import given, settings
from hypothesis import strategies as st

WORDS = [
    "foo",
    "Foo",
    "bar",
    "foo bar",
    "x",
    "",
    " ",
    "\t",
    "é",
    "É",
    "naïve",
    "a_b",
    "12",
    "²",
    "\u017f",  # a relative of s
    "K",
    "İ",
    "e\u0301",
]
RAW = [b"\xff", b"caf\xe9", b"\xe2\x82", b"\r", b"a\rb", b"\0"]
PATTERNS = [
    *("foo", "Foo", r"\bfoo\b", "^foo", "foo$", "^$", "^", r"fo+\s?bar", "f.o", "[^f]oo", ".", r"\w+", r"\W", r"\S$"),
    *(r"\d", "é", "caf.", "[à-ï]", "(foo|bar) ?x?", "foo{2}", r"(?<=f)o", r"(f)(o)\2", "(?i)foo", "(?i:É)", r"\Afoo\Z"),
    *(
        "s",
        "k",
        "i",
        "interface{}",
        "[[:alpha:]]",
        "x*",
        r"a\nb",
        r"\r",
        r"[\n]",
        r"o\s",
        "f(?!o)",
        r"\Bo",
        "(?>fo*)o",
        "�",
    ),
    *(r"\be", r"e\b", r"\b\w", "(?x) f o o", "a_b|12", r"\x41", r"[\w-]+", r"[^\s]+$", "fo*+", "(f)?(?(1)o|x)"),
]

lines = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join).map(str.encode) | st.sampled_from(RAW)
contents = st.builds(
    lambda mark, rows, end: mark + end.join(rows),
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(lines, max_size=6),
    st.sampled_from([b"\n", b"\r\n"]),
)
names = st.sampled_from(["a.py", "b.ts", "c", ".d", "x y.md", "[e].py", "-f.py", "build", "node_modules", "sub", "Sub"])
trees = st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), contents, min_size=1, max_size=8)
rules = st.lists(
    st.sampled_from(
        ["*.py", "!a.py", "/sub", "sub/", "**/c", "sub/**", "!sub/b.ts", "[ab].*", "x\\ y.md", "#c", "\\-f.py"]
    ),
    max_size=4,
)
requests = st.fixed_dictionaries(
    {"pattern": st.sampled_from(PATTERNS), "output_mode": st.sampled_from(["content", "files_with_matches", "count"])},
    optional={
        "-i": st.booleans(),
        "-n": st.booleans(),
        "-C": st.integers(0, 2),
        "-A": st.integers(0, 2),
        "glob": st.sampled_from(["*.py", "sub/*", "**/*.{py,ts}", "[!a]*", "*", "sub/**"]),
        "type": st.sampled_from(["py", "ts", "md"]),
        "multiline": st.booleans(),
        "head_limit": st.integers(0, 3),
        "offset": st.integers(0, 3),
        "include_ignored": st.booleans(),
        "path": st.sampled_from(["sub", "a.py", ".d", "link.py"]),
    },
)


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

    async def grep(self, request: dict[str, Any], *, use_ripgrep: bool) -> Any:
        tool = GrepTool({"working_dir": str(self.folder), "max_file_size": 400})
        tool.use_ripgrep = use_ripgrep
        return (await tool.execute(request)).model_dump()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("worlds").resolve() / "world")


@settings(max_examples=60)
@given(tree=trees, ignored=rules, is_repository=st.booleans(), asked=st.lists(requests, min_size=4, max_size=4))
async def test_both_engines_agree_on_generated_trees(
    world: World, tree: dict[str, bytes], ignored: list[str], is_repository: bool, asked: list[dict[str, Any]]
) -> None:
    world.make(tree, ignored, is_repository)

    for request in asked:
        ours, theirs = await asyncio.gather(
            world.grep(request, use_ripgrep=False), world.grep(request, use_ripgrep=True)
        )
        assert theirs == ours, request
        assert ours["success"] or ours["error"]["code"] == "not_found", request


async def test_a_corpus_run_through_both_engines_gives_equal_outputs(world: World) -> None:
    corpus: dict[str, Any] = {
        "a.py": b"import os\nfoo = 1\n\n\nFOO = foo\n",
        "sub/b.py": "\ufeffdef foo():\r\n    return bar\r\n".encode(),
        "sub/c.ts": "const foo = 'é'\n" * 5,
        "sub/deep/d.md": "# Foo\n\nfoo bar\n",
        "latin.txt": "caf\u00e9 foo\n".encode("latin-1"),
        "build/no.py": "foo\n",
    }
    world.make({path: text if isinstance(text, bytes) else text.encode() for path, text in corpus.items()}, [], False)
    options: list[dict[str, Any]] = [
        {},
        {"-i": True},
        {"-C": 2},
        {"glob": "*.py"},
        {"glob": "sub/**"},
        {"type": "ts"},
        {"multiline": True},
        {"offset": 1, "head_limit": 2},
    ]
    patterns = ["foo", r"foo\s", "^.*foo$", r"foo.*\n", r"\bbar\b", "caf."]

    for pattern, mode, option in product(patterns, ["content", "files_with_matches", "count"], options):
        request = {"pattern": pattern, "output_mode": mode, **option}
        answers = [await world.grep(request, use_ripgrep=use) for use in (False, True)]
        assert answers[0] == answers[1], request


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
        if b"\0" in data or len(data) > 400:
            continue
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
        *ended, last = text.split("\n")
        rows = [row[:-1] if row.endswith("\r") else row for row in ended] + ([last] if last else [])
        if count := sum(bool(re.search(pattern, row)) for row in rows):
            found[str(path)] = count
    return found


@settings(max_examples=60)
@given(tree=trees, pattern=st.sampled_from([one for one in PATTERNS if "[[" not in one]))
async def test_python_counts_what_a_naive_reader_counts(world: World, tree: dict[str, bytes], pattern: str) -> None:
    world.make(tree, [], is_repository=False)

    answer = await world.grep({"pattern": pattern, "output_mode": "count", "head_limit": 0}, use_ripgrep=False)

    assert answer["output"]["counts"] == naive(world.folder, pattern)


@given(pattern=st.sampled_from(PATTERNS), words=st.lists(st.sampled_from(WORDS), max_size=5))
def test_a_match_contains_the_text_that_is_said_to_be_required(pattern: str, words: list[str]) -> None:
    regex = compile_pattern(pattern, ignore_case=False, multiline=False)

    for match in regex.finditer(" ".join(words)):
        assert required_text(regex) in match.group()


@pytest.mark.parametrize(
    ("pattern", "is_exact"),
    [("foo", True), ("[a-z]+|é", True), ("f.o", False), (r"\bfoo\b", False), ("foo$", False), ("(?i)sk", False)],
)
def test_what_ripgrep_cannot_say_exactly_is_known_to_be_inexact(pattern: str, is_exact: bool) -> None:
    translation = translate(compile_pattern(pattern, ignore_case=False, multiline=False), multiline=False)

    assert translation is not None
    assert translation.is_exact is is_exact


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?:a{100}){100}", r"a\nb"])
def test_what_ripgrep_cannot_say_at_all_is_left_to_python(pattern: str) -> None:
    assert translate(compile_pattern(pattern, ignore_case=False, multiline=False), multiline=False) is None


def test_letters_with_relatives_beyond_ascii_are_all_known() -> None:
    beyond = "".join(map(chr, [*range(128, 0xD800), *range(0xE000, 0x1_1000)]))

    for letter in map(chr, range(128)):
        has_relatives = re.search(re.escape(letter), beyond, re.IGNORECASE) is not None
        translation = translate(compile_pattern(re.escape(letter), ignore_case=True, multiline=False), multiline=False)
        if has_relatives:
            assert translation is not None
            assert not translation.is_exact
