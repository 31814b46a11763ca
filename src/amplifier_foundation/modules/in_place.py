"""Distributions that are used where they lie: a bundle's own package, and the modules it names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .requirements import name_of, normalise, normalise_name

_EXTRAS = re.compile(r"[^\[;@]*\[([^\]]*)\]")
_NOT_FOR_IMPORT = ("test", "tests")


class InPlacePackages:
    """Names that no installer is asked for, because what they name is already there and often exists nowhere else."""

    def __init__(self) -> None:
        self._projects: dict[str, Mapping[str, Any]] = {}

    def add(self, name: str, project: Mapping[str, Any] | None = None) -> None:
        """Note a distribution; `project` is `[project]` of its `pyproject.toml`, where that is known."""
        key = normalise_name(name)
        self._projects[key] = project or self._projects.get(key, {})

    def without(self, requirements: Sequence[str]) -> tuple[str, ...]:
        """Return the requirements that are left to install; extras of what is in place are replaced by their own."""
        return tuple(dict.fromkeys(self._left(requirements, set())))

    def _left(self, requirements: Sequence[str], seen: set[tuple[str, str]]) -> Iterator[str]:
        for line in requirements:
            name = name_of(line)
            if name not in self._projects:
                yield line
                continue
            for extra in _extras_of(line):
                if (name, extra) not in seen:
                    seen.add((name, extra))
                    yield from self._left(_lines_of_extra(self._projects[name], extra), seen)


def import_roots(directory: Path, project: Mapping[str, Any]) -> list[Path]:
    """Return the directories from which a bundle's own package is imported: `src/`, `lib/`, or its own root.

    The root counts when a package of the project's name lies there, or any other one and there is no `src/` or `lib/`.
    """
    roots = [root for root in (directory / "src", directory / "lib") if root.is_dir()]
    own = normalise_name(str(project.get("name") or "")).replace("-", "_")
    if (own and (directory / own / "__init__.py").is_file()) or (not roots and _has_package(directory)):
        roots.append(directory)
    return roots


def _has_package(directory: Path) -> bool:
    return any(file.parent.name not in _NOT_FOR_IMPORT for file in directory.glob("*/__init__.py"))


def _extras_of(requirement: str) -> list[str]:
    found = _EXTRAS.match(requirement)
    return [normalise_name(extra.strip()) for extra in found[1].split(",")] if found else []


def _lines_of_extra(project: Mapping[str, Any], extra: str) -> list[str]:
    optional = project.get("optional-dependencies")
    groups = optional.items() if isinstance(optional, dict) else ()
    found = [group for name, group in groups if normalise_name(name) == extra and isinstance(group, list)]
    return [normalise(line) for group in found for line in group if isinstance(line, str)]
