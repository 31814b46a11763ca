"""What can be said about a module without importing it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from amplifier_core.installed import entry_points
from amplifier_core.packages import type_from_id

from .installed_modules import installed_modules

_TYPE = "__amplifier_module_type__"


@dataclass(frozen=True)
class ModuleFacts:
    """A module as its files describe it; `path` is its package. `documentation` is the package's docstring."""

    module_id: str
    module_type: str
    version: str | None
    path: str
    documentation: str = ""

    @property
    def summary(self) -> str:
        """The first sentence of the documentation, without the module's own name."""
        first = " ".join(self.documentation.partition("\n\n")[0].split())
        return first.removeprefix(f"{self.module_id}:").strip()


def installed_facts() -> list[ModuleFacts]:
    """Return the modules that are installed here, by their entry points."""
    known = installed_modules()
    found = {}
    for name in sorted({point.name for point in entry_points()}):
        module = known.find(name)
        if module is not None:
            found[name] = read_facts(name, module.path, module.version)
    return [*found.values()]


def read_facts(module_id: str, path: Path, version: str | None) -> ModuleFacts:
    """Return what the package, or the file, at a path says about a module."""
    file = path / "__init__.py" if path.is_dir() else path
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ModuleFacts(module_id, type_from_id(module_id), version, str(path))
    declared = (
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and any(isinstance(target, ast.Name) and target.id == _TYPE for target in node.targets)
    )
    module_type = str(next(declared, "") or type_from_id(module_id))
    return ModuleFacts(module_id, module_type, version, str(path), ast.get_docstring(tree) or "")
