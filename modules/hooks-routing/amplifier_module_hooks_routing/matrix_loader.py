"""Matrices: for each role the models that may serve it, best first; and what a person changes in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REQUIRED_ROLES = ("general", "fast")
BASE = "base"

_SHIPPED = Path(__file__).with_name("routing")


class MatrixError(ValueError):
    """A matrix cannot be used; the message names the file and what is wrong."""


@dataclass(frozen=True)
class Candidate:
    """A model that may serve a role: a provider, its name or a pattern, and configuration."""

    provider: str
    model: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"provider": self.provider, "model": self.model}
        return {**plain, "config": dict(self.config)} if self.config else plain


@dataclass(frozen=True)
class Role:
    description: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Matrix:
    """Roles in the order of their file; `source` is where it comes from."""

    name: str
    description: str = ""
    updated: str = ""
    roles: Mapping[str, Role] = field(default_factory=dict)
    source: str = ""

    def overridden(self, overrides: Mapping[str, Any]) -> "Matrix":
        """Return the matrix with what a person changed: a list replaces, and `base` in it is the role's own list.

        Raises:
            MatrixError: an override cannot be read.
        """
        roles = dict(self.roles)
        for name, given in overrides.items():
            known = roles.get(str(name))
            data = given if isinstance(given, Mapping) else {"candidates": given}
            listed = data.get("candidates", [BASE] if known else [])
            listed = [listed] if isinstance(listed, str | Mapping) else listed
            if not isinstance(listed, Sequence):
                raise MatrixError(f"routing override {name!r}: candidates is no list")
            if sum(item == BASE for item in listed) > 1:
                raise MatrixError(f"routing override {name!r}: 'base' stands more than once")
            candidates: list[Candidate] = []
            for item in listed:
                own = known.candidates if known and item == BASE else (_candidate(item, f"override {name!r}"),)
                candidates += own
            described = str(data.get("description") or (known.description if known else ""))
            roles[str(name)] = Role(described, tuple(candidates))
        return Matrix(self.name, self.description, self.updated, roles, self.source)


def matrix_files(directories: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the files of all matrices by their names; of two with one name, the first directory's."""
    found: dict[str, Path] = {}
    for directory in (*directories, _SHIPPED):
        for file in sorted(directory.glob("*.yaml")) if directory.is_dir() else ():
            found.setdefault(file.stem, file)
    return found


def load_matrix(name: str, directories: Sequence[Path] = ()) -> Matrix:
    """Return a matrix by its name.

    Raises:
        MatrixError: there is none, or it cannot be used.
    """
    files = matrix_files(directories)
    if name not in files:
        raise MatrixError(f"there is no routing matrix {name!r}; there are {', '.join(files) or 'none'}")
    return read_matrix(files[name])


def read_matrix(file: Path) -> Matrix:
    """Return the matrix in a file.

    Raises:
        MatrixError: it cannot be used.
    """
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise MatrixError(f"{file}: {error}") from error
    return parse_matrix(data, str(file), file.stem)


def parse_matrix(data: Any, source: str, name: str = "") -> Matrix:
    """Return what a document describes; raises `MatrixError`."""
    if not isinstance(data, Mapping) or not isinstance(data.get("roles"), Mapping):
        raise MatrixError(f"{source}: a matrix is a mapping with 'roles'")
    roles = {str(role): _role(value, f"{source}: role {role!r}") for role, value in data["roles"].items()}
    if missing := [role for role in REQUIRED_ROLES if role not in roles]:
        raise MatrixError(f"{source}: the roles {', '.join(missing)} are missing")
    described = str(data.get("description") or "")
    return Matrix(str(data.get("name") or name), described, str(data.get("updated") or ""), roles, source)


def _role(value: Any, where: str) -> Role:
    if not isinstance(value, Mapping):
        raise MatrixError(f"{where} is no mapping")
    description, listed = value.get("description"), value.get("candidates")
    if not isinstance(description, str) or not description.strip():
        raise MatrixError(f"{where} has no description")
    if not isinstance(listed, list) or not listed:
        raise MatrixError(f"{where} has no candidates")
    return Role(description.strip(), tuple(_candidate(item, where) for item in listed))


def _candidate(item: Any, where: str) -> Candidate:
    if item == BASE:
        raise MatrixError(f"{where}: 'base' stands for a role's own list, which only an override of it has")
    if not isinstance(item, Mapping) or not all(isinstance(item.get(key), str) for key in ("provider", "model")):
        raise MatrixError(f"{where}: a candidate needs provider and model, {item!r} has not")
    config = item.get("config") or {}
    if not isinstance(config, Mapping):
        raise MatrixError(f"{where}: config of {item['model']!r} is no mapping")
    return Candidate(item["provider"], item["model"], dict(config))


def validate_matrix_config(config: Mapping[str, Any], provider_info: Any) -> list[str]:
    """Return what is wrong with a candidate's configuration: only a choice that the provider declares can be."""
    problems: list[str] = []
    for declared in getattr(provider_info, "config_fields", None) or ():
        key, choices = str(getattr(declared, "id", "")), list(getattr(declared, "choices", None) or ())
        is_choice = getattr(declared, "field_type", None) == "choice" and bool(choices)
        if is_choice and key in config and config[key] not in choices:
            problems.append(f"{key} is {config[key]!r}, the provider knows {', '.join(map(str, choices))}")
    return problems
