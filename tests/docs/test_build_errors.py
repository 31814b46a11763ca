"""The table of build errors has every code that a compile can fail with, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ERRORS = {"ProfileCompilationError", "ResourceError"}
ROW = re.compile(r"^\| `([a-z-]+)` \| ")


def codes_in(trees: list[ast.Module]) -> set[str]:
    """Return the codes that files raise errors with, by themselves or by the name of a constant."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    constants = {
        target.id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    given = [word.value for call in calls if call.func.id in ERRORS for word in call.keywords if word.arg == "code"]
    texts = {str(value.value) for value in given if isinstance(value, ast.Constant)}
    return texts | {str(constants[value.id]) for value in given if isinstance(value, ast.Name)}


def test_every_code_is_explained() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src/amplifierd").rglob("*.py")]
    raised = codes_in(trees) | {"compile-failed", "bad-ref"}
    page = (ROOT / "docs/lifecycle.md").read_text(encoding="utf-8")
    table = page.partition("| Code | Meaning | What to do |\n")[2].partition("\n\n")[0]

    assert sorted(raised) == [found[1] for line in table.splitlines() if (found := ROW.match(line))]
