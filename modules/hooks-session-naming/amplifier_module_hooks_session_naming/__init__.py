"""hooks-session-naming: a name and a description for the session, from its conversation."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROMPT_COMPLETE, SESSION_END
from amplifier_kit.mounting import Handlers, contribute_events

from .naming import EVENTS, MODULE_ID, SessionNamingHook

__all__ = ["SessionNamingHook", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back."""
    hook = SessionNamingHook(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    handlers.register(PROMPT_COMPLETE, hook.on_prompt_complete, priority=100, name="session-naming")
    handlers.register(SESSION_END, hook.drain, priority=100, name="session-naming-drain")
    contribute_events(coordinator, MODULE_ID, EVENTS)
    logger.info("mounted %s", MODULE_ID)

    def cleanup() -> None:
        handlers.clear()
        hook.stop()

    return cleanup
