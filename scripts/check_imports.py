"""Check who imports whom: import-linter, with `amplifier_module_*` in its contracts standing for every module here."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
EVERY_MODULE = "amplifier_module_*"


def module_packages(root: Path) -> list[str]:
    """Return the package of every folder in `modules/`."""
    return sorted(path.parent.name for path in root.glob(f"modules/*/{EVERY_MODULE}/__init__.py"))


def configuration(root: Path) -> str:
    """Return import-linter's part of `pyproject.toml`, with the modules' packages in place of the pattern."""
    packages = module_packages(root)
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contracts = settings.pop("contracts")
    tables = [("[tool.importlinter]", settings), *(("[[tool.importlinter.contracts]]", table) for table in contracts)]
    lines = [line for header, table in tables for line in (header, *_assignments(table, packages))]
    return "\n".join(lines) + "\n"


def _assignments(table: dict[str, Any], packages: list[str]) -> list[str]:
    # Strings, booleans and lists of strings are written alike in JSON and TOML.
    return [f"{key} = {json.dumps(_expanded(value, packages))}" for key, value in table.items()]


def _expanded(value: Any, packages: list[str]) -> Any:
    if not isinstance(value, list):
        return value
    # A layer may hold several packages, divided by `|`; elsewhere each is an item of its own.
    return [
        item.replace(EVERY_MODULE, " | ".join(packages))
        for entry in value
        for item in (packages if entry == EVERY_MODULE else [entry])
    ]


def main() -> int:
    generated = ROOT / ".import_linter_cache" / "contracts.toml"
    generated.parent.mkdir(exist_ok=True)
    generated.write_text(configuration(ROOT), encoding="utf-8")
    return lint_imports(config_filename=str(generated), no_logo=True)


if __name__ == "__main__":
    sys.exit(main())
