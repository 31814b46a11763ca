"""The figures of the house: files, lines, importers, forwarding functions, and names that exist twice.

python scripts/measure_house.py [--json] [ROOT]
"""

import argparse
import ast
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """The modules of the product, by the name under which they are imported."""
    for base in (root / "src", *sorted((root / "modules").iterdir())):
        for path in sorted(base.rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported_by(name: str, path: Path, tree: ast.AST, known: set[str]) -> set[str]:
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= {each for each in inner if each in known} or {base}
    return (found & known) - {name}


def is_forwarding(node: ast.AST) -> bool:
    """True for a function whose whole body calls a function of the same name on something else."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    body = [each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value.value if isinstance(body[0].value, ast.Await) else body[0].value
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == node.name


def lines_before_first_definition(tree: ast.Module, count: int) -> int:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
    return count


def measure(root: Path) -> dict[str, Any]:
    files = dict(sources(root))
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in files.items()}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    importers: Counter[str] = Counter()
    for name, tree in trees.items():
        importers.update(imported_by(name, files[name], tree, set(files)))
    classes: dict[str, int] = defaultdict(int)
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name] += 1
    sizes = sorted(lines.values())
    folders = Counter(path.parent.relative_to(root).as_posix() for path in files.values())
    before = sum(lines_before_first_definition(tree, lines[name]) for name, tree in trees.items())
    return {
        "files": len(files),
        "lines": sum(sizes),
        "median": statistics.median(sizes),
        "p90": sizes[int(len(sizes) * 0.9)],
        "largest": sizes[-1],
        "under 40 lines": sum(size < 40 for size in sizes),
        "one importer": sum(
            importers[name] == 1 for name, path in files.items() if path.stem not in ("__init__", "__main__")
        ),
        "forwarding functions": sum(is_forwarding(node) for tree in trees.values() for node in ast.walk(tree)),
        "public classes that exist twice": sum(count > 1 for count in classes.values()),
        "share of lines before the first definition": f"{before / sum(sizes):.1%}",
        "folders with more than 25 files": {name: count for name, count in folders.items() if count > 25},
        "test lines": sum(
            path.read_text(encoding="utf-8").count("\n") for path in (root / "tests").rglob("*.py") if path.is_file()
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=REPOSITORY)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.root)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:44}{value}")


if __name__ == "__main__":
    main()
