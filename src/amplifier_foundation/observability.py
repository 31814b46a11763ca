"""Which events of ours the logging hooks should write down."""

from collections.abc import Iterable
from typing import Any

FOUNDATION_OBSERVABILITY_EVENTS = ("session:config", "mentions:resolved")

_LOGGING_MODULES = frozenset({"hooks-logging", "hook-context-intelligence"})


def inject_additional_events(
    mount_plan: dict[str, Any], events: Iterable[str], target_modules: frozenset[str] | None = None
) -> None:
    """Add events to `config.additional_events` of the plan's logging hooks, in place; a second time changes nothing."""
    wanted = list(events)
    targets = _LOGGING_MODULES if target_modules is None else target_modules
    for hook in mount_plan.get("hooks") or ():
        if isinstance(hook, dict) and hook.get("module") in targets:
            config = hook.get("config")
            if not isinstance(config, dict):
                config = hook["config"] = {}
            config["additional_events"] = list(dict.fromkeys([*(config.get("additional_events") or ()), *wanted]))
