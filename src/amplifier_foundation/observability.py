"""Which events of ours the logging hooks should write down.

A hook that records what `config.additional_events` names says so in its `runtime.toml`: `records_events = true`.
"""

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import find_package, package_name
from amplifier_foundation.sources import local

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
    return local.find_package(package_name(module_id))


# What modules of the ecosystem mean without declaring it: the only names of such modules in the foundation.
#
# Our own modules, and any other, declare the same in the `runtime.toml` of their package.


EVENT_RECORDERS = frozenset({"hooks-logging", "hook-context-intelligence"})
"""Hooks that record the events named in `config.additional_events`; those that say so: `records_events = true`."""

# What a module declares about itself in the `runtime.toml` of its package.
#
# A declaration is read, not run: no module is imported for it.


DECLARATION = "runtime.toml"


def read_declaration(package: Path) -> dict[str, Any] | None:
    """Return what the module in a package directory declares, None when it declares nothing.

    A file that cannot be read is logged and counts as empty.
    """
    declaration = package / DECLARATION
    if not declaration.is_file():
        return None
    try:
        import tomllib  # parsing TOML is needed only where something is declared

        return tomllib.loads(declaration.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        logger.warning("%s is not read: %s", declaration, error)
        return {}


# What a session cost, its delegated sessions included.


COST_CHANNEL = "session.cost"


def sum_cost_usd(contributions: Iterable[Any]) -> Decimal | None:
    """Add up the `cost_usd` of all contributions that name one; `None`, which is not zero, when none does."""
    costs = [cost for contribution in contributions if (cost := _cost_of(contribution)) is not None]
    return sum(costs, Decimal(0)) if costs else None


async def bridge_child_cost(child_coordinator: Any, parent_coordinator: Any, child_session_id: str) -> None:
    """Let the parent session account for what its child has cost so far. Never raises."""
    # A bill that cannot be written must not undo the work.
    with Boundary(logger, "The cost of session %s is not counted: %s", child_session_id):
        total = sum_cost_usd(await child_coordinator.collect_contributions(COST_CHANNEL))
        if total is not None:
            contribution = {"cost_usd": total}
            parent_coordinator.register_contributor(COST_CHANNEL, f"delegate:{child_session_id}", lambda: contribution)


def _cost_of(contribution: Any) -> Decimal | None:
    if not isinstance(contribution, Mapping) or (cost := contribution.get("cost_usd")) is None:
        return None
    try:
        return cost if isinstance(cost, Decimal) else Decimal(str(cost))
    except InvalidOperation:
        return None
