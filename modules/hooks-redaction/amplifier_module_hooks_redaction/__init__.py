"""hooks-redaction: secrets and personal data are masked in what events show, never in the conversation."""

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from amplifier_core import ModuleCoordinator
from amplifier_kit.redaction import (
    DEFAULT_ALLOWLIST,
    DEFAULT_RULES,
    PII_PATTERNS,
    SECRET_PATTERNS,
    mask_text,
    scrub,
)

from .hook import RedactionHook
from .settings import MODULE_ID

__all__ = [
    "DEFAULT_ALLOWLIST",
    "DEFAULT_RULES",
    "MODULE_ID",
    "PII_PATTERNS",
    "SECRET_PATTERNS",
    "RedactionHook",
    "mask_text",
    "mount",
    "on_session_ready",
    "scrub",
]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)

_mounted: WeakSet[RedactionHook] = WeakSet()  # where `on_session_ready` finds what `mount` made for its coordinator


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Mask the kernel's events and offer `redaction.scrub`; returns the cleanup."""
    hook = RedactionHook(coordinator, config)
    hook.offer_scrubbing()
    count = hook.register_known_events()
    _mounted.add(hook)
    logger.info("mounted %s on %d events", MODULE_ID, count)
    return hook.cleanup


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    """Also mask the events that the other modules announced."""
    for hook in list(_mounted):
        if hook.coordinator is coordinator:
            await hook.register_declared_events()
