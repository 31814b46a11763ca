"""hooks-mode: holds a session, and those below it, to the mode that it is in."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROVIDER_REQUEST, TOOL_PRE
from amplifier_kit.mounting import Handlers, contribute_events, intercept_tools, offer_capability

from .definition import ModeDefinition, parse_mode_file
from .discovery import ModeDiscovery, ModeListing
from .hooks import EVENTS, MODULE_ID, ModeError, ModeHooks

__all__ = ["ModeDefinition", "ModeDiscovery", "ModeError", "ModeHooks", "ModeListing", "mount", "parse_mode_file"]

__amplifier_module_type__ = "hook"

MODE_GUARD = "mode.guard"
"""The capability that makes what holds a session below this one to the mode."""

logger = logging.getLogger(__name__)

_BEFORE_APPROVAL = -20
_GUIDANCE = 10


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back."""
    hook = ModeHooks(coordinator, config)
    handlers = Handlers(MODULE_ID, coordinator)
    handlers.register(TOOL_PRE, hook.judge_call, priority=_BEFORE_APPROVAL, name="mode-tools")
    handlers.register(PROVIDER_REQUEST, hook.guide, priority=_GUIDANCE, name="mode-context")
    see_no_more = intercept_tools(coordinator, MODULE_ID, hook.see_own)
    offer_capability(coordinator, MODE_GUARD, hook.guard_of)
    contribute_events(coordinator, MODULE_ID, EVENTS)
    state = getattr(coordinator, "session_state", None)
    if isinstance(state, dict):
        state.setdefault("active_mode", None)
        state["mode_discovery"], state["mode_hooks"] = hook.discovery, hook
        hook.restore()
    logger.info("mounted %s", MODULE_ID)

    def cleanup() -> None:
        handlers.clear()
        if see_no_more is not None:
            see_no_more()

    return cleanup
