"""Which events of ours the logging hooks should write down.

A hook that records what `config.additional_events` names says so in its `runtime.toml`: `records_events = true`.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import find_package, package_name

from .declarations import read_declaration
from .sources import installed_packages
from .undeclared import EVENT_RECORDERS

logger = logging.getLogger(__name__)

FOUNDATION_OBSERVABILITY_EVENTS = ("session:config", "mentions:resolved")


def event_recorders(mount_plan: dict[str, Any], resolver: object) -> frozenset[str]:
    """Return the hooks of a plan that record additional events: those that declare it, and the undeclared.

    `resolver` is that of the plan's sessions. Modules whose folder it does not know are looked for among the installed.
    """
    hooks = {entry.module_id for entry in MountPlan(mount_plan).entries(section="hooks")}
    return EVENT_RECORDERS | {module_id for module_id in hooks - EVENT_RECORDERS if _declares(module_id, resolver)}


def inject_additional_events(
    mount_plan: dict[str, Any], events: Iterable[str], target_modules: frozenset[str] | None = None
) -> None:
    """Add events to `config.additional_events` of the plan's logging hooks, in place; a second time changes nothing."""
    wanted = list(events)
    targets = EVENT_RECORDERS if target_modules is None else target_modules
    for entry in MountPlan(mount_plan).entries(section="hooks"):
        if entry.module_id in targets:
            config = entry.spec.get("config")
            if not isinstance(config, dict):
                config = entry.raw["config"] = {}
            config["additional_events"] = list(dict.fromkeys([*(config.get("additional_events") or ()), *wanted]))


def _declares(module_id: str, resolver: object) -> bool:
    package = _package_of(module_id, resolver)
    declared = read_declaration(package) if package is not None else None
    return declared is not None and declared.get("records_events") is True


def _package_of(module_id: str, resolver: object) -> Path | None:
    folder = None
    if callable(get_source := getattr(resolver, "get_module_source", None)):  # an application may bring its own
        with Boundary(logger, "the resolver cannot say where %r is: %s", module_id, level=logging.DEBUG):
            folder = get_source(module_id)
    if isinstance(folder, str):
        return find_package(Path(folder), module_id)
    return installed_packages.find_package(package_name(module_id))
