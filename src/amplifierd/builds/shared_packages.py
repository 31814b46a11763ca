"""Packages that a process has imported before, in another version than a build brings."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path


def find_shared(directory: Path) -> Iterator[str]:
    """Say which packages of a build's dependencies its modules will not get in this process, and who uses another."""
    for distribution in importlib.metadata.distributions(path=[str(directory)]):
        for module in sorted(_modules_of(distribution)):
            place = _place_of(module)
            if place is None or place == directory:
                continue
            version = _version_in(place, distribution.name)
            if version != distribution.version:
                yield (
                    f"it brings {distribution.name} {distribution.version}, but {module} {version or ''}".rstrip()
                    + f" from {place} is imported already, by {_users(module)}; run it in a process of its own"
                )


def _modules_of(distribution: Distribution) -> set[str]:
    """Return the names under which a distribution is imported."""
    files = (path for path in distribution.files or () if path.suffix == ".py")
    return {path.parts[0].removesuffix(".py") for path in files if ".dist-info" not in path.parts[0]}


def _place_of(module: str) -> Path | None:
    """Return the directory that an imported module was found in."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return None
    path = Path(file)
    return path.parent.parent if path.stem == "__init__" else path.parent


def _version_in(place: Path, name: str) -> str | None:
    found = next(iter(importlib.metadata.distributions(name=name, path=[str(place)])), None)
    return found.version if found is not None else None


def _users(module: str) -> str:
    """Name some of the modules that hold an imported one."""
    wanted = sys.modules[module]
    users = [name for name, each in list(sys.modules.items()) if name != module and _holds(each, wanted)]
    return ", ".join(sorted(users)[:3]) or "this process"


def _holds(module: object, wanted: object) -> bool:
    return any(value is wanted for value in vars(module).values()) if hasattr(module, "__dict__") else False
