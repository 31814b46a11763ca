"""Only `amplifier_core/mount_plan.py` walks the sections of a mount plan; everybody else asks it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWNER = "src/amplifier_core/mount_plan.py"
SECTIONS = {"providers", "tools", "hooks"}


def sources() -> dict[str, str]:
    """Return the files of the packages and modules, by their path in the repository."""
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("modules/**/*.py")]
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def walkers(files: dict[str, str]) -> set[str]:
    """Return the files with a loop over the three lists, or over a name that is bound to them in any file."""
    trees = {path: ast.parse(text) for path, text in files.items() if all(section in text for section in SECTIONS)}
    named = {name for tree in trees.values() for name in _names_of_the_lists(tree)}
    trees |= {
        path: ast.parse(text)
        for path, text in files.items()
        if path not in trees and any(name in text for name in named)
    }
    return {path for path, tree in trees.items() if any(_is_the_lists(walked, named) for walked in _walked(tree))}


def _names_of_the_lists(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if _is_the_lists(value, set()):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _walked(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield node.iter


def _is_the_lists(node: ast.expr, named: set[str]) -> bool:
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return {item.value for item in items if isinstance(item, ast.Constant)} == SECTIONS == set(_texts(items))
        case ast.Dict(keys=keys):
            return set(_texts(keys)) == SECTIONS
        case ast.Name(id=name):
            return name in named
        case ast.Attribute(attr=name):
            return name in named
        case ast.Call(func=ast.Attribute(value=owner, attr="items" | "keys" | "values")):
            return _is_the_lists(owner, named)
        case ast.Call(args=[inner, *_]):  # enumerate(…), sorted(…), MappingProxyType(…)
            return _is_the_lists(inner, named)
    return False


def _texts(nodes: list[ast.expr | None] | list[ast.expr]) -> Iterator[object]:
    return (node.value if isinstance(node, ast.Constant) else None for node in nodes)


def test_nobody_else_walks_the_sections_of_a_mount_plan() -> None:
    assert walkers(sources()) == {OWNER}


@pytest.mark.parametrize(
    ("text", "is_walker"),
    [
        ("for section in ('providers', 'tools', 'hooks'): ...", True),
        ("found = [x for name in ['hooks', 'tools', 'providers'] for x in plan[name]]", True),
        ("KINDS = {'providers': 'provider', 'tools': 'tool', 'hooks': 'hook'}\nfor a, b in KINDS.items(): ...", True),
        ("LISTS = ('providers', 'tools', 'hooks')\nfor number, name in enumerate(LISTS): ...", True),
        ("LISTS = ('providers', 'tools', 'hooks')\nif name in LISTS: ...", False),
        ("for name in ('providers', 'tools'): ...", False),
        ("for name in ('prompt', 'context', 'providers', 'tools', 'hooks'): ...", False),
    ],
)
def test_a_walker_is_recognised(text: str, is_walker: bool) -> None:
    assert bool(walkers({"file.py": text})) == is_walker
