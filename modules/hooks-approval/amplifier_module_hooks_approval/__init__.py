"""hooks-approval: asks before risky tools run; every failure counts as no."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROMPT_SUBMIT, TOOL_POST, TOOL_PRE
from amplifier_kit.approval import CONSENT, GATE, GUARD
from amplifier_kit.concerns import CONCERN, LEDGER
from amplifier_kit.mounting import Handlers, intercept_tools, offer_capability

from .approval_hook import ApprovalHook
from .config import MODULE_ID

__all__ = ["ApprovalHook", "mount"]

__amplifier_module_type__ = "hook"

REGISTER_PROVIDER = "approval.register_provider"
FORGET = "approval.forget"

logger = logging.getLogger(__name__)

_PRIORITY = 1_000_000  # after every handler that may change a call


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the guard; returns the function that takes it back."""
    hook = ApprovalHook(config, coordinator=coordinator)
    handlers = Handlers(MODULE_ID, coordinator)
    handlers.register(TOOL_PRE, hook.handle_tool_pre, priority=_PRIORITY, name="approval_hook")
    offer_capability(coordinator, REGISTER_PROVIDER, hook.register_provider)
    offer_capability(coordinator, FORGET, hook.forget)
    offer_capability(coordinator, GATE, hook.gate)
    offer_capability(coordinator, CONSENT, hook.consents)
    offer_capability(coordinator, CONCERN, hook.ask_about)
    offer_capability(coordinator, LEDGER, hook.ledger)
    handlers.register(PROMPT_SUBMIT, hook.handle_prompt, priority=_PRIORITY, name="approval_ledger")
    see_no_more = intercept_tools(coordinator, GUARD, hook.execution)
    if see_no_more is None:
        handlers.register(TOOL_POST, hook.handle_tool_post, priority=-_PRIORITY, name="approval_ledger")
    offer_capability(coordinator, GUARD, hook.execution)
    logger.info("mounted %s with %d rules", MODULE_ID, len(hook.settings.rules))

    def unmount() -> None:
        handlers.clear()
        if see_no_more is not None:
            see_no_more()

    return unmount
