"""What can be said about a module without importing it."""

from __future__ import annotations

import ast
import logging
from dataclasses import dataclass
from pathlib import Path

from amplifier_core.exceptions import ModuleValidationError
from amplifier_core.installed import entry_points
from amplifier_core.packages import module_type_in, type_from_id

from .installed_modules import installed_modules

logger = logging.getLogger(__name__)


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
    names = sorted({point.name for point in entry_points()})
    found = ((name, module) for name in names if (module := known.find(name)) is not None)
    listed = (find_facts(name, module.path, module.version) for name, module in found)
    return [facts for facts in listed if facts is not None]


def find_facts(module_id: str, path: Path, version: str | None) -> ModuleFacts | None:
    """Return the same as `read_facts`, but None for a module of an unknown type, which is logged and not listed."""
    try:
        return read_facts(module_id, path, version)
    except ModuleValidationError as error:
        logger.error("%s is not listed: %s", path, error.message)  # noqa: TRY400 - its own message says it all
        return None


def read_facts(module_id: str, path: Path, version: str | None) -> ModuleFacts:
    """Return what the package, or the file, at a path says about a module.

    Raises:
        ModuleValidationError: it declares an unknown type.
    """
    file = path / "__init__.py" if path.is_dir() else path
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ModuleFacts(module_id, type_from_id(module_id), version, str(path))
    module_type = module_type_in(tree, module_id, file)
    return ModuleFacts(module_id, module_type, version, str(path), ast.get_docstring(tree) or "")
