"""The tools that a module's source declares, read without importing it."""

import ast
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_BYTES = 1 << 20
_NOT_ITS_CODE = frozenset({"tests", "test", "examples", "node_modules", "build", "dist"})
_TOLD = ("execute", "description", "input_schema", "get_schema")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A class with a name, and an `execute`, a description or a schema, as far as its source has them in literals."""

    name: str
    description: str = ""
    schema: str = ""
    """The input schema as JSON; empty where the source computes it."""


def declared_tools(directory: Path) -> list[DeclaredTool]:
    """Return the tools of a module's folder, sorted by name; files that cannot be read or parsed have none."""
    found = {tool.name: tool for file in _sources(directory) for tool in _tools_in(file)}
    return [found[name] for name in sorted(found)]


def _sources(directory: Path) -> Iterator[Path]:
    for file in sorted(directory.rglob("*.py")):
        parts = file.relative_to(directory).parts[:-1]
        if not any(part.startswith(".") or part in _NOT_ITS_CODE for part in parts) and file.is_file():
            yield file


def _tools_in(file: Path) -> Iterator[DeclaredTool]:
    try:
        if file.stat().st_size > _MAX_BYTES:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    constants = dict(_assigned(tree.body))
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        values = dict(_declared(node))
        name = _literal(values.get("name"), constants)
        if isinstance(name, str) and name and not values.keys().isdisjoint(_TOLD):
            description = _literal(values.get("description"), constants)
            schema = _literal(values.get("input_schema", values.get("get_schema")), constants)
            yield DeclaredTool(
                name, description if isinstance(description, str) else "", json.dumps(schema) if schema else ""
            )


def _declared(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a class says of itself: its attributes, those that `__init__` sets, and what its functions return."""
    for each in node.body:
        if isinstance(each, _Function):
            if each.name == "__init__":
                yield from _assigned(each.body)
            returned = [inner.value for inner in ast.walk(each) if isinstance(inner, ast.Return) and inner.value]
            yield each.name, returned[0] if len(returned) == 1 else ast.Constant(None)
    yield from _assigned(node.body)


def _assigned(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield what is assigned to names, and to attributes of `self`."""
    for node in body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                yield target.attr, node.value
            elif isinstance(target, ast.Name):
                yield target.id, node.value


def _literal(node: ast.expr | None, constants: dict[str, ast.expr]) -> Any:
    """Return the value of an expression that is a literal, or the name of one in the same file; else None."""
    if isinstance(node, ast.Name):
        node = constants.get(node.id)
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
