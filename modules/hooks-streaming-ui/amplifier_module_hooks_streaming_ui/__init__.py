"""hooks-streaming-ui: what happens in a session, printed as it happens, where no host shows it."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.mounting import Handlers, offer_capability

from .display import MODULE_ID, StreamingUIHooks

__all__ = ["StreamingUIHooks", "mount"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook and tell the host how its person likes to be shown things; returns what takes it back."""
    hook = StreamingUIHooks(coordinator, config)
    offer_capability(coordinator, "ui.preferences", hook.preferences.to_dict())
    offer_capability(coordinator, "ui.streaming", hook)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    for event, handler in hook.handlers().items():
        handlers.register(event, handler, priority=100, name=f"{MODULE_ID}-{event}")
    logger.info("mounted %s", MODULE_ID)
    return handlers.clear
