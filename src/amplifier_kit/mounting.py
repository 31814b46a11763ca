"""What a module needs of its coordinator, even if that is a stub: what is missing counts as not available."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from amplifier_core import HookRegistry, ModuleCoordinator
from amplifier_core.boundary import Boundary, at_once
from amplifier_core.events import ALL_EVENTS
from amplifier_core.handler_call import Handler
from amplifier_core.tool_interception import ToolInterceptor
from amplifier_kit.types import Coordinator

logger = logging.getLogger(__name__)


def hook_registry(coordinator: Coordinator) -> HookRegistry | None:
    """Return the session's hook registry, or what stands in for one: something that takes handlers or events."""
    registry = getattr(coordinator, "hooks", None)
    if registry is None:
        registry = _try(lambda: _present(coordinator).get("hooks"), "hook registry")
    return registry if hasattr(registry, "register") or hasattr(registry, "emit") else None


def find_capability(coordinator: Coordinator, name: str) -> Any:
    """Return a capability, None when it is not offered."""
    if coordinator is None:
        return None
    try:  # written out, because a turn comes by here for every tool call
        capability = coordinator.get_capability(name)
    except Exception:
        logger.debug("the coordinator offers no capability %s", name, exc_info=True)
        return None
    return at_once(capability)


def find_function(coordinator: Coordinator, name: str) -> Any:
    """Return a capability that is called, None when it is not offered.

    This is where stand-ins for coordinators are adapted: one that has an answer to every question makes its answers up,
    and what has whatever is asked of it, and is not awaited, is such an answer.
    """
    capability = find_capability(coordinator, name)
    if capability is None or isinstance(capability, (MethodType, FunctionType)):
        return capability
    is_made_up = hasattr(capability, "what_nothing_has") and not asyncio.iscoroutinefunction(capability)
    return None if is_made_up else capability


def offer_capability(coordinator: Coordinator, name: str, value: object) -> None:
    """Register a capability where that is possible."""
    _try(lambda: _present(coordinator).register_capability(name, value), f"capability {name}")


def intercept_tools(coordinator: Coordinator, name: str, interceptor: ToolInterceptor) -> Callable[[], None] | None:
    """Have calls of the session's tools intercepted; returns what takes that back, None where it is not possible."""
    if inspect.getattr_static(coordinator, "intercept_tools", None) is None:  # a mock would have anything
        return None
    undo = _try(lambda: _present(coordinator).intercept_tools(name, interceptor), "interception of tools")
    return undo if callable(undo) else None


def contribute_events(coordinator: Coordinator, module_id: str, events: Iterable[str]) -> None:
    """Announce the events a module emits beyond the kernel's own list."""
    names = list(events)
    contribute(coordinator, "observability.events", module_id, lambda: list(names))


def contribute(coordinator: Coordinator, channel: str, module_id: str, offer: Callable[[], object]) -> None:
    """Offer what a function returns in a channel of the coordinator's, where it has them."""
    _try(lambda: _present(coordinator).register_contributor(channel, module_id, offer), "contribution channel")


async def declared_events(coordinator: Coordinator) -> list[str]:
    """Return the events that modules announce beyond the kernel's own list, each once, in the order announced.

    They come from the capability `observability.events`, a list or a callable that returns one, and from the channel
    of that name. What is neither a list nor a string is skipped with a warning.
    """
    declared = find_capability(coordinator, "observability.events")
    announcements = [_try(declared, "declared events") if callable(declared) else declared]
    with Boundary(logger, "the coordinator offers no contributions: %s", level=logging.DEBUG):
        announcements += await _present(coordinator).collect_contributions("observability.events")
    events: dict[str, None] = {}
    for announced in announcements:
        for event in announced if isinstance(announced, list) else [announced]:
            if isinstance(event, str):
                if event not in ALL_EVENTS:  # the kernel's own events are known already
                    events[event] = None
            elif event is not None:
                logger.warning("an announced event is skipped: its name is a %s", type(event).__name__)
    return list(events)


def find_mounted(coordinator: Coordinator, mount_point: str) -> Any:
    """Return what is mounted there, None when nothing is."""
    return _try(lambda: _present(coordinator).get(mount_point), f"mount point {mount_point}")


def session_id_of(coordinator: Coordinator) -> str | None:
    session_id = getattr(coordinator, "session_id", None)
    return session_id if session_id and isinstance(session_id, str) else None


def working_dir(coordinator: Coordinator) -> Path:
    """Return the session's working directory, else the process's."""
    declared = find_capability(coordinator, "session.working_dir")
    return Path(declared).expanduser() if isinstance(declared, str | Path) and str(declared) else Path.cwd()


def project_slug(directory: Path) -> str:
    """Return the name under which a project's sessions are kept."""
    slug = str(directory.absolute()).replace("/", "-").replace("\\", "-").replace(":", "")
    return slug if slug.startswith("-") else f"-{slug}"


class Handlers:
    """The handlers one module registers, and the cleanup that takes them back."""

    def __init__(self, module_id: str, coordinator: Coordinator, enabled_events: list[str] | None = None) -> None:
        self.module_id = module_id
        registry = hook_registry(coordinator)
        self._registry = registry if hasattr(registry, "register") else None
        self._enabled_events = enabled_events
        self._unregister: dict[tuple[str, str], Callable[[], None]] = {}
        if self._registry is None:
            logger.warning("%s: the coordinator has no hook registry; no handler is registered", module_id)

    def register(self, event: str, handler: Handler, *, priority: int, name: str) -> bool:
        """Register once for each event and name; False if the event is not enabled or there is no registry."""
        if self._registry is None or (event, name) in self._unregister or not self.is_enabled(event):
            return False
        undo = at_once(self._registry.register(event, handler, priority=priority, name=name))
        self._unregister[event, name] = undo if callable(undo) else lambda: None
        logger.debug("%s: handler %s on %s, priority %d", self.module_id, name, event, priority)
        return True

    def is_enabled(self, event: str) -> bool:
        """True if `enabled_events` admits the event."""
        return self._enabled_events is None or any(fnmatchcase(event, glob) for glob in self._enabled_events)

    def unregister(self, event: str, name: str) -> None:
        """Take one handler back; a registry that fails at it is logged."""
        undo = self._unregister.pop((event, name), None)
        if undo is not None:
            _try(undo, f"way to unregister {name} from {event}")

    def clear(self, *, keep: str | None = None) -> None:
        """Take all handlers back, except those on the event `keep`."""
        for event, name in list(self._unregister):
            if event != keep:
                self.unregister(event, name)


def _present(coordinator: Coordinator) -> ModuleCoordinator:
    if coordinator is None:
        raise LookupError("there is no coordinator")
    return coordinator


def _try(call: Callable[[], Any], what: str) -> Any:
    with Boundary(logger, "the coordinator offers no %s: %s", what, level=logging.DEBUG):
        return at_once(call())
    return None
