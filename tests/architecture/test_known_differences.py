"""The differences that `make compat` expects from the reference kernel are named after tests that exist."""

import ast
from pathlib import Path

import pytest
from known_differences import DIFFERENCES

SUITES = Path(__file__).parents[1] / "core"


@pytest.mark.parametrize("suite", DIFFERENCES)
def test_every_explained_difference_is_a_test_of_its_suite(suite: str) -> None:
    tree = ast.parse((SUITES / f"test_{suite}.py").read_text(encoding="utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

    explained = {test for named in DIFFERENCES[suite].values() for test in named}

    assert explained <= tests, sorted(explained - tests)
