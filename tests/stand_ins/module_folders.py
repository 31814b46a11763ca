"""The modules of the repository, found by their folders and read without importing them."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def package_of(folder: Path) -> Path:
    return folder / f"amplifier_module_{folder.name.replace('-', '_')}"


def folders_of_type(module_type: str) -> list[Path]:
    """Return the folders in `modules/` whose package declares that type."""
    folders = [path.parent for path in sorted((ROOT / "modules").glob("*/pyproject.toml"))]
    return [folder for folder in folders if _declared_type(folder) == module_type]


def _declared_type(folder: Path) -> str | None:
    initial = package_of(folder) / "__init__.py"
    for node in ast.parse(initial.read_text(encoding="utf-8")).body if initial.is_file() else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__amplifier_module_type__":
            return str(ast.literal_eval(node.value))
    return None
