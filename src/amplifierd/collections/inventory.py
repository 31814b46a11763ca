"""What a collection holds beside profiles; for listing and mentions, never compiled by itself."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .models import Inventory

logger = logging.getLogger(__name__)

_PROJECT_FILE = "pyproject.toml"
_KEYS = ("name", "version", "description", "author", "capabilities", "requires")


def take_inventory(root: Path) -> Inventory:
    """List the conventional directories of a collection and read its `pyproject.toml`, if there is one."""
    return Inventory(
        metadata=_read_metadata(root),
        agents=_listed(root, (path for path in root.glob("agents/*.md") if path.is_file())),
        context=_listed(root, (path for path in root.glob("context/**/*.md") if path.is_file())),
        modules=_listed(root, (path for path in root.glob("modules/*") if (path / _PROJECT_FILE).is_file())),
        scenario_tools=_listed(root, (path for path in root.glob("scenario-tools/*") if path.is_dir())),
    )


def _listed(root: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    relative = (path.relative_to(root) for path in paths)
    return tuple(sorted(path.as_posix() for path in relative if not any(part.startswith(".") for part in path.parts)))


def _read_metadata(root: Path) -> dict[str, Any]:
    """Return what the project file at the root, else in a package directory below, says about the collection."""
    packages = (path.parent / _PROJECT_FILE for path in sorted(root.glob("*/__init__.py")))
    file = next((path for path in (root / _PROJECT_FILE, *packages) if path.is_file()), None)
    if file is None:
        return {}
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read and is left out: %s", file, error)
        return {}
    project = _table(data, "project")
    described = {
        **project,
        "author": _author(project.get("authors")),
        "requires": project.get("dependencies"),
        **_table(data, "tool", "amplifier", "collection"),
    }
    return {key: described[key] for key in _KEYS if described.get(key) is not None}


def _table(data: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _author(authors: Any) -> str | None:
    first = authors[0] if isinstance(authors, list) and authors else None
    return (first.get("name") or first.get("email")) if isinstance(first, Mapping) else None
