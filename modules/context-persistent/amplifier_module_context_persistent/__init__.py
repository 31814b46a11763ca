"""context-persistent: the conversation in a file, so that it goes on where it was after a restart or a crash."""

from collections.abc import Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_kit.config import ModuleConfig
from amplifier_kit.contexts.compacting import COMPACTION_EVENTS, mount_context
from amplifier_kit.contexts.settings import CompactionSettings
from amplifier_kit.mounting import hook_registry, session_id_of, working_dir

from .context import CONTEXT_PERSIST_ERROR, MODULE_ID, PersistentContextManager
from .settings import PersistenceSettings, derive_transcript_path

__all__ = ["PersistentContextManager", "mount"]

__amplifier_module_type__ = "context"


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], None]:
    """Load the conversation and mount the context; the cleanup writes what is unsaved and closes the file."""
    given = ModuleConfig(MODULE_ID, config)
    settings = CompactionSettings(given, protected_recent=PersistentContextManager.default_protected_recent)
    persistence = PersistenceSettings(given)
    given.warn_unknown()
    directory, session_id = working_dir(coordinator), session_id_of(coordinator)
    if persistence.transcript_path is None and session_id is not None:
        persistence.transcript_path = derive_transcript_path(directory, session_id)
    context = PersistentContextManager(
        hooks=hook_registry(coordinator),
        max_tokens_explicit=given.is_set("max_tokens"),
        working_dir=directory,
        **vars(settings),
        **vars(persistence),
    )
    try:
        await context.initialize()
        return await mount_context(coordinator, context, (*COMPACTION_EVENTS, CONTEXT_PERSIST_ERROR))
    except BaseException:
        context.close()
        raise
