"""hooks-backup: copies of the conversation, before it is compacted and when the session ends."""

import logging
from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import SESSION_END
from amplifier_kit.mounting import Handlers, contribute_events

from .backup_hook import EMITTED_EVENTS, MODULE_ID, TranscriptBackupHook, read_backup

__all__ = ["TranscriptBackupHook", "mount", "read_backup"]

__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Register the hook; returns the function that takes it back, and writes the final backup if nothing has."""
    hook = TranscriptBackupHook(config, coordinator=coordinator)
    handlers = Handlers(MODULE_ID, coordinator, hook.enabled_events)
    hook.register_on(handlers)
    contribute_events(coordinator, MODULE_ID, EMITTED_EVENTS)
    logger.info("mounted %s, backups go to %s", MODULE_ID, hook.backup_dir)

    def cleanup() -> None:
        handlers.clear()
        if handlers.is_enabled(SESSION_END):
            hook.finish()

    return cleanup
