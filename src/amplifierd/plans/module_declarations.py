"""What a module says about itself in a file, its `runtime.toml`: it is read, not run, and no module is imported for it.

`undeclared.toml` beside this file says the same for modules of the ecosystem, by their ids, since they declare nothing.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from amplifier_core.module_sources import ModuleNotFoundError as ModuleNotFound
from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import PlanEntry
from amplifier_core.packages import find_package, provider_name
from amplifier_foundation.declarations import read_declaration
from amplifierd.builds.installed_modules import installed_modules

logger = logging.getLogger(__name__)

_UNDECLARED = Path(__file__).with_name("undeclared.toml")


def declared_by(entry: PlanEntry, resolver: ModuleSourceResolver | None = None) -> Mapping[str, Any]:
    """Return what the module of a plan's entry declares.

    `resolver` finds compiled modules, as it does for the kernel's loader; the rest is looked for among the installed.
    """
    package = _find_package(entry, resolver)
    declared = read_declaration(package) if package is not None else None
    undeclared: Mapping[str, Any] = _undeclared().get(entry.module_id, {})
    return undeclared if declared is None else declared


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
