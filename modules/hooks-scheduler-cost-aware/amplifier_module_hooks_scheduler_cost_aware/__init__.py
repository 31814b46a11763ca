"""hooks-scheduler-cost-aware: keeps a session within a budget and prefers cheaper tools."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import Handlers, contribute_events, offer_capability

from .scheduler import EMITTED_EVENTS, CostAwareScheduler

__all__ = ["CostAwareScheduler", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the scheduler's handlers; returns the function that takes them back."""
    scheduler = CostAwareScheduler(config, coordinator=coordinator)
    handlers = Handlers(scheduler.module_id, coordinator, scheduler.enabled_events)
    scheduler.register_on(handlers)
    contribute_events(coordinator, scheduler.module_id, EMITTED_EVENTS)
    offer_capability(coordinator, "scheduler.session_cost", lambda: scheduler.session_cost)
    logger.info("mounted %s with a budget of %s", scheduler.module_id, scheduler.max_cost)

    def cleanup() -> None:
        handlers.clear()
        scheduler.report()

    return cleanup
