"""Ignore rules: what git ignores is not kept, and no pattern can stall us. Git itself is asked what it ignores."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifierd.checkpoints import Checkpoints
from amplifierd.checkpoints.ignore_rules import IgnoreChain, IgnoreFile, parse_patterns

PATHS = [
    "a.log", "keep.log", "a/b.log", "a/keep.log", "build/out.o", "src/build/out.o", "src/a/b/c.txt", "src/a/c.txt",
    "src/c.txt", "docs/x/y/z.md", "docs/z.md", "node_modules/m/index.js", "lib/node_modules/m.js", "temp1", "temp12",
    "tempx", "[x]", "x", "!bang", "#hash", "space ", "a b", "deep/er/and/deeper/file", "foo/bar", "foo/bar2", "abc-d",
    "UPPER.TXT", "dot.d/.hidden", ".env", ".env.local", "a-z", "b", "9",
]  # fmt: skip

FILES = [
    "*.log\n!keep.log\n",
    "build/\n",
    "/build/\n",
    "src/*/c.txt\n",
    "src/**/c.txt\n**/z.md\n",
    "docs/**\n!docs/z.md\n",
    "node_modules\n",
    "temp?\ntemp[0-9]\n",
    "temp[!0-9]\ntemp[^1]2\n",
    "\\[x\\]\n\\!bang\n\\#hash\n#x\n",
    "space\\ \na b  \n",
    "deep/**/file\n",
    "foo/*\n!foo/bar\n",
    "*\n!*/\n!*.txt\n",
    "/*\n!/src\n/src/*\n!/src/a\n",
    "**/a/\n",
    "a/**\n",
    "**\n!a.log\n",
    "[[:upper:]]*\n[[:digit:]]\n",
    "[]-a]\n[a-]-z\n",
    ".env*\n!.env\n\r\n*.log\r\n",
    "\ufeffx\n",
    "foo/bar/\nfoo/bar2\n",
    "/src/a/\nsrc/a/b/\n!src/a/b/\n",
    "*a*b*\nu*\nabc*d\n*-*\n",
    "te**1\n**er/and\n",
    "?\\\n[b-9]\n[/x]\nfoo[/]bar\nfoo\\/bar2\n",
    "[\n[a\n\\\n!\n/\n//\n",
]


def kept_by_git(folder: Path) -> set[str]:
    command = ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    for path in PATHS:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


def kept_by_us(text: str, nested: dict[str, str] | None = None) -> set[str]:
    files = {"": text, **(nested or {})}
    kept = set()
    for path in [*PATHS, *(f"{base}/.gitignore".removeprefix("/") for base in files)]:
        chain, names, ignored = IgnoreChain(), path.split("/"), False
        for depth in range(len(names)):
            base = "/".join(names[:depth])
            chain = chain.with_file(IgnoreFile(base, "", files[base])) if base in files else chain
            here = "/".join(names[: depth + 1])
            ignored = ignored or chain.ignores(here, is_directory=depth < len(names) - 1)
        kept |= set() if ignored else {path}
    return kept


@pytest.mark.parametrize("text", FILES)
def test_what_git_ignores_is_ignored(project: Path, text: str) -> None:
    (project / ".gitignore").write_bytes(text.encode())

    assert kept_by_us(text) == kept_by_git(project)


@settings(max_examples=40)
@given(st.lists(st.text("ab*?/!x.[]-\\", min_size=1, max_size=7), min_size=1, max_size=4))
def test_random_patterns_mean_what_they_mean_to_git(lines: list[str]) -> None:
    names = ["a", "b", "x", "ab", "a.x", "a/b", "a/a/b", "b/a", "b/x/a", "x/a/b/b"]
    text = "\n".join(lines) + "\n"
    command = ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"]
    folder = Path(os.environ["HOME"]) / "random-patterns"
    if not folder.exists():
        folder.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / ".gitignore").write_text(text)
    done = subprocess.run(command, input="\0".join(names), cwd=folder, capture_output=True, text=True, check=False)
    chain = IgnoreChain((IgnoreFile("", "", text),))

    def is_ignored(path: str) -> bool:
        parts = path.split("/")
        places = [("/".join(parts[: depth + 1]), depth < len(parts) - 1) for depth in range(len(parts))]
        return any(chain.ignores(place, is_directory=is_directory) for place, is_directory in places)

    assert {name for name in names if is_ignored(name)} == set(done.stdout.split("\0")) - {""}


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    """With a matcher that goes back, the universe ends before this does."""
    patterns = parse_patterns("*a" * 100 + "*b\n" + "**/a/" * 50 + "b\n" + "[ab]*" * 80 + "c\n")

    assert not any(pattern.matches(["a"] * 60 + ["a" * 250], is_directory=False) for pattern in patterns)


async def test_ignore_files_are_honoured_at_every_level_and_above(tmp_path: Path) -> None:
    outer = tmp_path / "repository"
    work = outer / "packages" / "one"
    (work / "sub").mkdir(parents=True)
    (outer / ".git" / "info").mkdir(parents=True)
    (outer / ".git" / "info" / "exclude").write_text("*.private\n")
    (outer / ".gitignore").write_text("*.out\n/packages/one/generated\n")
    (work / ".gitignore").write_text("!special.out\n")
    (work / "sub" / ".gitignore").write_text("/local\n")
    ignored = ("a.out", "generated", "x.private", "sub/local", "sub/b.out")
    files = [work / name for name in (*ignored, "special.out", "local", "kept", "sub/kept")]
    for file in files:
        file.write_text(file.name)
    checkpoints = Checkpoints(tmp_path / "checkpoints", work)
    before = await checkpoints.take(1)
    for file in files:
        file.unlink()

    changes = await checkpoints.changes(before)

    assert changes.deleted == ("kept", "local", "special.out", "sub/kept")


async def test_a_directory_that_its_repository_ignores_is_kept_all_the_same(tmp_path: Path) -> None:
    """Whoever works in it has chosen it."""
    work = tmp_path / "repository" / "scratch"
    work.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    (tmp_path / "repository" / ".gitignore").write_text("scratch/\n")
    (work / "file").write_text("x")

    assert (await Checkpoints(tmp_path / "checkpoints", work).take(1)).files == 1


async def test_an_ignore_file_that_is_a_symlink_or_a_pipe_says_nothing(work: Path, checkpoints: Checkpoints) -> None:
    (work / "rules").write_text("*\n")
    (work / ".gitignore").symlink_to("rules")
    os.mkfifo(work / "src" / ".gitignore")

    assert (await checkpoints.take(1)).files == 7
