"""Only `amplifier_core/mount_plan.py` walks a mount plan, its sections or one of them; everybody else asks it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWNER = "src/amplifier_core/mount_plan.py"
SECTIONS = {"providers", "tools", "hooks"}
READ = re.compile(r"""[(\[]["'](?:providers|tools|hooks)["']""")


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


def readers(files: dict[str, str]) -> set[str]:
    """Return the files with a loop over one of the lists that was read off a plan by its name."""
    trees = {path: ast.parse(text) for path, text in files.items() if READ.search(text)}
    named = {path: _names_of_one_list(tree) for path, tree in trees.items()}
    return {path for path, tree in trees.items() if any(_reads(walked, named[path]) for walked in _walked(tree))}


def _names_of_one_list(tree: ast.Module) -> set[str]:
    """Return the names that are bound to a list of a plan."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value and _reads(node.value, set())
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def _reads(node: ast.expr, named: set[str]) -> bool:
    return any(
        (isinstance(one, ast.Name) and one.id in named)
        or (isinstance(one, ast.Call | ast.Subscript) and _is_list_of_a_plan(one))
        for one in ast.walk(node)
    )


def _is_list_of_a_plan(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=plan, attr="get"), args=[ast.Constant(value=section), *_]):
            return section in SECTIONS and _is_plan(plan)
        case ast.Subscript(value=plan, slice=ast.Constant(value=section)):
            return section in SECTIONS and _is_plan(plan)
    return False


def _is_plan(node: ast.expr) -> bool:
    return re.search(r"(?:plan|config)\b", ast.unparse(node)) is not None


def _texts(nodes: list[ast.expr | None] | list[ast.expr]) -> Iterator[object]:
    return (node.value if isinstance(node, ast.Constant) else None for node in nodes)


def test_nobody_else_walks_the_sections_of_a_mount_plan() -> None:
    assert walkers(sources()) == {OWNER}


def test_nobody_else_walks_a_list_of_a_mount_plan() -> None:
    assert readers(sources()) == set()


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


@pytest.mark.parametrize(
    ("text", "is_reader"),
    [
        ("for hook in mount_plan.get('hooks') or (): ...", True),
        ("found = [entry['module'] for entry in self.plan['tools']]", True),
        ("entries = plan.get('providers') or []\nfor number, entry in enumerate(entries): ...", True),
        ("for entry in (getattr(coordinator, 'config', None) or {}).get('providers'): ...", True),
        ("if (found := plan['tools']):\n    names = {entry['module'] for entry in found}", True),
        ("for name, tool in coordinator.get('tools').items(): ...", False),
        ("for tool in request.get('tools') or (): ...", False),
        ("for entry in MountPlan(plan).entries(section='hooks'): ...", False),
        ("if not plan.get('providers'): ...", False),
    ],
)
def test_a_reader_is_recognised(text: str, is_reader: bool) -> None:
    assert bool(readers({"file.py": text})) == is_reader
