"""hooks-scheduler-heuristic: chooses tools and agents by a simple strategy."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import Handlers

from .scheduler import FirstAvailableStrategy, HeuristicScheduler, RandomStrategy, RoundRobinStrategy, SelectionStrategy

__all__ = [
    "FirstAvailableStrategy",
    "HeuristicScheduler",
    "RandomStrategy",
    "RoundRobinStrategy",
    "SelectionStrategy",
    "mount",
]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the scheduler's handlers; returns the function that takes them back."""
    scheduler = HeuristicScheduler(config)
    handlers = Handlers(scheduler.module_id, coordinator, scheduler.enabled_events)
    scheduler.register_on(handlers)
    logger.info("mounted %s with strategy %s", scheduler.module_id, scheduler.strategy_name)
    return handlers.clear
