"""hooks-logging: every event of a session in its log, one JSON object per line."""

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from amplifier_core import ModuleCoordinator

from .hook import LoggingHook
from .settings import MODULE_ID

__all__ = ["MODULE_ID", "LoggingHook", "mount", "on_session_ready"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)

_mounted: WeakSet[LoggingHook] = WeakSet()  # where `on_session_ready` finds what `mount` made for its coordinator


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Log the kernel's events and the configured ones; returns the cleanup."""
    hook = LoggingHook(coordinator, config)
    count = hook.register_known_events()
    _mounted.add(hook)
    logger.info("mounted %s on %d events", MODULE_ID, count)
    return hook.cleanup


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    """Also log the events that the other modules announced."""
    for hook in list(_mounted):
        if hook.coordinator is coordinator:
            await hook.register_declared_events()
