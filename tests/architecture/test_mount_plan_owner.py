"""Only `amplifier_core/mount_plan.py` knows how a mount plan is written: its lists, and both ways to name a member."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWNER = "src/amplifier_core/mount_plan.py"
SECTIONS = {"providers", "tools", "hooks"}
READ = re.compile(r"""[(\[]["'](?:providers|tools|hooks)["']""")
MEMBER = re.compile(r"""["'](?:orchestrator|context)["']|_source\b""")
PLAN = re.compile(r"(?:plan|config|definition|sections|overlay|agent)\b")
WITH_MEMBERS = re.compile(r"\b(?:session|plan|section|definition)\b")
WALKING = {"all", "any", "enumerate", "filter", "list", "map", "next", "reversed", "set", "sorted", "tuple", "zip"}

# Who names a member of a session by hand all the same, and why.
BY_HAND = {
    "src/amplifier_kit/delegation/agents.py",  # the ecosystem's rule: the section, else the entry
    "src/amplifier_foundation/prepared/child.py",  # likewise: into the section, and into the entry
    "src/amplifierd/profiles/documents/inheritance.py",  # a profile, which has entries only
    "src/amplifierd/profiles/documents/profile_reader.py",  # likewise
    "src/amplifierd/plans/request.py",  # a portable plan: it gets the context that it lacks
    "src/amplifierd/server/api/profile_models.py",  # a profile, as a client may send it
}


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


def _spread(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield what is walked without a loop: unpacked, or given to a function that goes through it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Starred):
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WALKING:
            yield from node.args


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
    return {
        path
        for path, tree in trees.items()
        if any(_reads(walked, named[path]) for walked in (*_walked(tree), *_spread(tree)))
    }


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
    return PLAN.search(ast.unparse(node)) is not None


def spellers(files: dict[str, str]) -> set[str]:
    """Return the files that read or write the orchestrator or the context of a plan, or what stands beside them."""
    trees = {path: ast.parse(text) for path, text in files.items() if MEMBER.search(text)}
    return {path for path, tree in trees.items() if any(map(_spells, ast.walk(tree)))}


def _spells(node: ast.AST) -> bool:
    match node:
        case (
            ast.Call(
                func=ast.Attribute(value=owner, attr="get" | "pop" | "setdefault"),
                args=[ast.Constant(value="orchestrator" | "context"), *_],
            )
            | ast.Subscript(value=owner, slice=ast.Constant(value="orchestrator" | "context"))
        ):
            text = ast.unparse(owner)
            return "coordinator" not in text and WITH_MEMBERS.search(text) is not None
        case ast.Constant(value="orchestrator_source" | "context_source"):
            return True
        case ast.JoinedStr(values=[*_, ast.Constant(value="_source")]):
            return True
    return False


def _texts(nodes: list[ast.expr | None] | list[ast.expr]) -> Iterator[object]:
    return (node.value if isinstance(node, ast.Constant) else None for node in nodes)


def test_no_other_file_walks_the_sections_of_a_mount_plan() -> None:
    assert walkers(sources()) == {OWNER}


def test_no_other_file_walks_a_list_of_a_mount_plan() -> None:
    assert readers(sources()) == set()


def test_no_other_file_spells_out_how_a_member_of_a_session_is_named() -> None:
    assert spellers(sources()) == {OWNER, *BY_HAND}


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
        ("names = [*map(str, definition['tools'])]", True),
        ("both = [*sections.get('hooks', ()), 1]", True),
        ("first = next(iter(sorted(agent.get('tools'))))", True),
        ("for name, tool in coordinator.get('tools').items(): ...", False),
        ("for tool in request.get('tools') or (): ...", False),
        ("for entry in MountPlan(plan).entries(section='hooks'): ...", False),
        ("if not plan.get('providers'): ...", False),
    ],
)
def test_a_reader_is_recognised(text: str, is_reader: bool) -> None:
    assert bool(readers({"file.py": text})) == is_reader


@pytest.mark.parametrize(
    ("text", "is_speller"),
    [
        ("loop = plan['session']['orchestrator']", True),
        ("loop = (self.definition.get('session') or {}).get('orchestrator')", True),
        ("config = mount_plan_section.get('context')\nplan['orchestrator']['config'] = {}", True),
        ("source = session.get('orchestrator_source')", True),
        ("source = session.get(f'{member}_source')", True),
        ("loop = session.coordinator.get('orchestrator')", False),
        ("files = bundle.get('context')", False),
        ("loop = MountPlan(plan).at('session.orchestrator')", False),
    ],
)
def test_a_speller_is_recognised(text: str, is_speller: bool) -> None:
    assert bool(spellers({"file.py": text})) == is_speller
