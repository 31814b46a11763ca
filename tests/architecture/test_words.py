"""Names are the trade's words: those that the glossary replaces are in no name of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "modules").rglob("*.py")]
GLOSSARY = ROOT / "docs" / "glossary.md"


def banned_words() -> list[str]:
    """The words of the glossary's last table."""
    table = GLOSSARY.read_text(encoding="utf-8").partition("## Words that the code does not use")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ") and "Instead of" not in line]
    return [word.strip() for row in rows for word in row.split(",")]


def names_of(path: Path) -> Iterator[str]:
    """The names that a file defines or uses, its own among them."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.arg() | ast.keyword():
                yield node.arg or ""
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_no_name_has_a_word_that_the_glossary_replaces() -> None:
    words = banned_words()
    assert len(words) > 15
    banned = re.compile(rf"(?:^|_)(?:{'|'.join(map(re.escape, words))})(?:_|s?$)")

    found = {(path.relative_to(ROOT).as_posix(), name) for path in SOURCES for name in names_of(path)}

    assert sorted(pair for pair in found if banned.search(snake(pair[1]))) == []
