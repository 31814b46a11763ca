"""context-simple: the conversation in memory, compacted in the view of each request and never in the history."""

from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.config import ModuleConfig
from amplifier_kit.contexts.compacting import CompactingContext, mount_context
from amplifier_kit.contexts.settings import CompactionSettings
from amplifier_kit.mounting import hook_registry

__all__ = ["SimpleContextManager", "mount"]

__amplifier_module_type__ = "context"

MODULE_ID = "context-simple"


class SimpleContextManager(CompactingContext):
    """The compacting context view over a history in memory."""

    module_id = MODULE_ID


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Mount the context; the cleanup takes its handler back."""
    given = ModuleConfig(MODULE_ID, config)
    settings = CompactionSettings(given)
    given.warn_unknown()
    context = SimpleContextManager(
        hooks=hook_registry(coordinator), max_tokens_explicit=given.is_set("max_tokens"), **vars(settings)
    )
    return await mount_context(coordinator, context)
