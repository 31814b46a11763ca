"""tool-skills: finds, inspects and loads Agent Skills, in the session or in one of their own."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import PROVIDER_REQUEST, SESSION_FORK, SESSION_RESUME, SESSION_START
from amplifier_kit.mounting import Handlers, contribute_events, hook_registry, offer_capability

from .discovery import SkillsDiscovery
from .hooks import SkillsVisibilityHook
from .tool import EVENTS, FORK_CONTEXT, MODULE_ID, SkillsTool

__all__ = ["SkillsDiscovery", "SkillsTool", "SkillsVisibilityHook", "mount"]

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> Callable[[], Awaitable[None]]:
    """Mount the tool `load_skill` and show the model what it can load; the cleanup unloads the skills."""
    tool = SkillsTool(config, coordinator)
    hook = SkillsVisibilityHook(coordinator, tool.discovery, tool.visibility, is_fork=tool.is_fork)
    await coordinator.mount("tools", tool, name=tool.name)
    offer_capability(coordinator, "skills_discovery", tool.discovery)
    if tool.is_fork:
        offer_capability(coordinator, FORK_CONTEXT, True)
    contribute_events(coordinator, MODULE_ID, EVENTS)
    handlers = Handlers(MODULE_ID, coordinator) if hook_registry(coordinator) is not None else None
    if handlers is not None:
        for event in (SESSION_START, SESSION_FORK):
            handlers.register(event, tool.start, priority=hook.priority, name="skills-start")
        handlers.register(SESSION_RESUME, tool.resume, priority=hook.priority, name="skills-resume")
    if hook.is_enabled:
        hook.place()
        if handlers is not None:
            handlers.register(PROVIDER_REQUEST, hook.inject, priority=hook.priority, name="skills-visibility")
    await tool.begin()
    logger.info("mounted %s", MODULE_ID)

    async def cleanup() -> None:
        hook.remove()
        if handlers is not None:
            handlers.clear()
        await tool.end()

    return cleanup
