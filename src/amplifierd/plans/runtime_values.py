"""Which values of a running session a module wants in its configuration: what it declares in its `runtime.toml`.

The file lies in the module's package and has two tables, both in the shape of the module's configuration: `defaults`
holds what is set where a key is absent, `always` what is set in any case. Inside of their texts `<working_dir>`,
`<session_dir>`, `<sessions_dir>` and `<approvals_file>` stand for the session's own:

    [defaults]
    allowed_write_paths = ["<working_dir>"]

A declaration is read, not run: no module is imported for it.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from amplifier_core.module_sources import ModuleNotFoundError as ModuleNotFound
from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import PlanEntry
from amplifier_core.packages import find_package, provider_name
from amplifier_foundation.observability import read_declaration
from amplifierd.profiles.builds.installed_modules import installed_modules

logger = logging.getLogger(__name__)

_PLACE = re.compile(r"<([a-z_]+)>")


@dataclass(frozen=True)
class RuntimePlaces:
    """Where a session works and keeps its files."""

    working_dir: Path
    session_dir: Path
    sessions_dir: Path
    approvals_file: Path


class RuntimeValues:
    """Fills in configurations for one session.

    `resolver` finds compiled modules, as it does for the kernel's loader; the rest is looked for among the installed.
    """

    def __init__(self, places: RuntimePlaces, resolver: ModuleSourceResolver | None = None) -> None:
        self._places = {name: str(place) for name, place in asdict(places).items()}
        self._resolver = resolver

    def fill_in(self, entry: PlanEntry, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a module's configuration with the values that it wants."""
        declared = declared_by(entry, self._resolver)
        filled = _laid_under(config, self._with_places(declared.get("defaults"), entry))
        return _laid_over(filled, self._with_places(declared.get("always"), entry))

    def _with_places(self, wanted: Any, entry: PlanEntry) -> Any:
        """Return what is wanted with the session's places in it."""
        if isinstance(wanted, Mapping):
            return {key: self._with_places(value, entry) for key, value in wanted.items()}
        if isinstance(wanted, list):
            return [self._with_places(value, entry) for value in wanted]
        if not isinstance(wanted, str):
            return wanted

        def place(match: re.Match[str]) -> str:
            if match[1] not in self._places:
                logger.warning("%s wants %s, which no session has", entry.module_id, match[0])
            return self._places.get(match[1], match[0])

        return _PLACE.sub(place, wanted)


def _laid_under(config: Mapping[str, Any], defaults: Any) -> dict[str, Any]:
    """Return a configuration with defaults for the keys that it lacks, at any depth."""
    filled = dict(config)
    for key, value in (defaults or {}).items():
        if key not in filled:
            filled[key] = value
        elif isinstance(value, Mapping) and isinstance(filled[key], Mapping):
            filled[key] = _laid_under(filled[key], value)
    return filled


def _laid_over(config: Mapping[str, Any], values: Any) -> dict[str, Any]:
    """Return a configuration with other values in place of its own, at any depth."""
    filled = dict(config)
    for key, value in (values or {}).items():
        own = filled.get(key)
        filled[key] = _laid_over(own, value) if isinstance(value, Mapping) and isinstance(own, Mapping) else value
    return filled


# What a module says about itself in a file, its `runtime.toml`: it is read, not run, and no module is imported for
# it.
#
# `undeclared.toml` beside this file says the same for modules of the ecosystem, by their ids, since they declare
# nothing.


_UNDECLARED = Path(__file__).with_name("undeclared.toml")


def declared_by(entry: PlanEntry, resolver: ModuleSourceResolver | None = None) -> Mapping[str, Any]:
    """Return what the module of a plan's entry declares.

    `resolver` finds compiled modules, as it does for the kernel's loader; the rest is looked for among the installed.
    """
    package = _find_package(entry, resolver)
    declared = read_declaration(package) if package is not None else None
    undeclared: Mapping[str, Any] = _undeclared().get(entry.module_id, {})
    return undeclared if declared is None else declared


def is_display(module_id: str) -> bool:
    """True for a module of the ecosystem that shows or names sessions."""
    return _undeclared().get(module_id, {}).get("is_display") is True


def key_variables(entry: PlanEntry, resolver: ModuleSourceResolver | None = None) -> tuple[str, ...]:
    """Return the environment variables in which a provider looks for its key.

    A module declares them as `environment` in the table `credentials`. One that declares nothing is taken to follow the
    custom of its kind: `provider-acme` reads `ACME_API_KEY`.
    """
    match declared_by(entry, resolver).get("credentials"):
        case {"environment": list(names)}:
            return tuple(str(name) for name in names)
    return (f"{provider_name(entry.module_id).replace('-', '_').upper()}_API_KEY",)


def _find_package(entry: PlanEntry, resolver: ModuleSourceResolver | None) -> Path | None:
    if resolver is not None:
        try:
            return find_package(resolver.resolve(entry.module_id, entry.source).resolve(), entry.module_id)
        except (ModuleNotFound, OSError, ValueError):
            logger.debug("%s is not compiled; the installed one is meant", entry.module_id, exc_info=True)
    installed = installed_modules().find(entry.module_id)
    return installed.path if installed is not None else None


@cache
def _undeclared() -> dict[str, Any]:
    return tomllib.loads(_UNDECLARED.read_text(encoding="utf-8"))
