"""Figures that have a limit, counted in the syntax trees: where types are left open, and where everything is caught."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"


def is_left_open(node: ast.AST) -> bool:
    """Say whether a node is the type `Any`; the line that imports it does not count."""
    return isinstance(node, ast.Name) and node.id == "Any"


def catches_everything(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    names = [name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)] if node.type is not None else []
    return node.type is None or not {"Exception", "BaseException"}.isdisjoint(names)


@pytest.mark.parametrize(
    ("package", "counts", "limit"),
    [("amplifier_kit", is_left_open, 25), ("amplifier_core", catches_everything, 2)],
    ids=["the kit is typed", "the kernel catches everything in few places"],
)
def test_a_thousand_lines_have_at_most_so_many(package: str, counts: Callable[[ast.AST], bool], limit: float) -> None:
    texts = [file.read_text(encoding="utf-8") for file in (SRC / package).rglob("*.py")]
    found = sum(counts(node) for text in texts for node in ast.walk(ast.parse(text)))
    lines = sum(len(text.splitlines()) for text in texts)

    assert 1000 * found / lines < limit


@pytest.mark.parametrize(
    ("counts", "text", "found"),
    [
        (is_left_open, "from typing import Any\nx: dict[str, Any] = {}\ny: object = 1", 1),
        (catches_everything, "try:\n    f()\nexcept (OSError, Exception):\n    pass\nexcept OSError:\n    pass", 1),
        (catches_everything, "try:\n    f()\nexcept:\n    pass", 1),
    ],
)
def test_what_counts_is_seen(counts: Callable[[ast.AST], bool], text: str, found: int) -> None:
    assert sum(counts(node) for node in ast.walk(ast.parse(text))) == found
