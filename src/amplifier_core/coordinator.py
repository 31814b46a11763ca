"""The coordinator: one session's switchboard, where modules mount themselves and find each other."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .boundary import TaskBoundary, settle
from .cancellation import CancellationToken
from .hook_effects import HookEffects
from .hooks import HookRegistry
from .models import HookResult
from .mounting import COLLECTIONS, SLOTS, Cleanup, NotedDict, current_mounting, run_cleanups
from .tool_interception import MountedTools, ToolInterceptor

if TYPE_CHECKING:
    from .approval import ApprovalSystem
    from .display import DisplaySystem
    from .loader import ModuleLoader

__all__ = ["ModuleCoordinator"]

logger = logging.getLogger(__name__)

_READABLE = SLOTS | COLLECTIONS | {"hooks"}
_DEFAULT_INJECTION_BUDGET = 10_000
_DEFAULT_INJECTION_SIZE = 10_240
_UNSET = object()


class ModuleCoordinator:
    """Mount points, capabilities, contribution channels, hooks and cancellation of one session.

    Modules may set further attributes on it.
    """

    # Named here so that a mock made after the class (`MagicMock(spec=ModuleCoordinator)`) has them as well.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "approval_system",
        "cancellation",
        "channels",
        "config",
        "display_system",
        "loader",
        "mount_points",
        "parent_id",
        "session",
        "session_id",
        "session_state",
    )

    def __init__(
        self,
        session: Any = None,
        approval_system: "ApprovalSystem | None" = None,
        display_system: "DisplaySystem | None" = None,
    ) -> None:
        self.session = session
        self.session_id: str = session.session_id if session is not None else ""
        self.parent_id: str | None = session.parent_id if session is not None else None
        self.config: Any = session.config if session is not None else {}
        self.approval_system = approval_system
        self.display_system = display_system
        self.loader: ModuleLoader | None = None
        self.cancellation = CancellationToken()
        self.mount_points: dict[str, Any] = NotedDict(
            {
                "orchestrator": None,
                "providers": NotedDict(),
                "tools": MountedTools(),
                "context": None,
                "hooks": HookRegistry(),
                "module-source-resolver": None,
            }
        )
        self.channels: dict[str, list[dict[str, Any]]] = {}
        self.session_state: dict[str, Any] = {}
        self._capabilities: dict[str, Any] = NotedDict()
        self._cleanups: list[Cleanup] = []
        self._hook_effects = HookEffects()

    @property
    def hooks(self) -> HookRegistry:
        """The registry at the mount point `hooks`."""
        registry: HookRegistry = self.mount_points["hooks"]
        return registry

    @hooks.setter
    def hooks(self, registry: HookRegistry) -> None:
        self.mount_points["hooks"] = registry

    @property
    def injection_budget_per_turn(self) -> int | None:
        """How many tokens hooks may inject per turn before a warning; None is unlimited."""
        limit: int | None = self._session_setting("injection_budget_per_turn", _DEFAULT_INJECTION_BUDGET)
        return limit

    @property
    def injection_size_limit(self) -> int | None:
        """How many bytes one injection may have; None is unlimited."""
        limit: int | None = self._session_setting("injection_size_limit", _DEFAULT_INJECTION_SIZE)
        return limit

    @property
    def has_own_size_limit(self) -> bool:
        """Whether the plan itself limits the size of injections."""
        return self._session_setting("injection_size_limit", _UNSET) is not _UNSET

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        """Attach `module`; providers and tools go by `name`, else by their own `name`."""
        point = self._point(mount_point, name)
        if point in SLOTS:
            self.mount_points[point] = module
        elif point in COLLECTIONS:
            key = getattr(module, "name", None) if name is None else name
            if key is None:
                raise ValueError(f"Name required for {point}")
            if not isinstance(key, str):
                raise TypeError(f"the name of a module in {point} must be a str, got {type(key).__name__}")
            self.mount_points[point][key] = module
        elif point == "hooks":
            raise ValueError("Hooks should be registered directly with the HookRegistry")
        else:
            logger.debug("nothing can be mounted at %r", point)

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        """Detach what is mounted there; an empty place is left as it is."""
        point = self._point(mount_point, name)
        if point in SLOTS:
            self.mount_points[point] = None
        elif point in COLLECTIONS:
            if name is None:
                raise ValueError(f"Name required to unmount from {point}")
            self.mount_points[point].pop(name, None)

    def get(self, mount_point: str, name: str | None = None) -> Any:
        """Return what is mounted there; for providers and tools without a name the live dict of all."""
        point = self._point(mount_point, name)
        if point in COLLECTIONS and name is not None:
            return self.mount_points[point].get(name)
        return self.mount_points[point] if point in _READABLE else None

    def get_mounted(self, mount_point: str) -> list[str]:
        """Return the names mounted there, in order."""
        mounted = self.get(mount_point)
        if mount_point in COLLECTIONS:
            return list(mounted)
        if mount_point == "hooks":
            return list(dict.fromkeys(name for names in mounted.list_handlers().values() for name in names))
        return [] if mounted is None else [mount_point]

    def register_capability(self, name: str, value: Any) -> None:
        """Offer `value` to the other modules under `name`, replacing what was there."""
        self._capabilities[name] = value

    def get_capability(self, name: str) -> Any:
        """Return the capability, or None if it is not offered."""
        return self._capabilities.get(name)

    def register_contributor(self, channel: str, name: str, callback: Callable[[], Any]) -> None:
        """Have `callback` called whenever the channel's contributions are collected."""
        contribution = _Contribution(self.channels, channel, {"name": name, "callback": callback})
        self.channels.setdefault(channel, []).append(contribution.contributor)
        if mounting := current_mounting():
            mounting.note(contribution)

    async def collect_contributions(self, channel: str) -> list[Any]:
        """Ask the channel's contributors in turn; one that fails is left out."""
        collected = []
        for contributor in tuple(self.channels.get(channel, ())):
            contribution = None
            message = "Contributor '%s' on channel '%s' failed: %s"
            with TaskBoundary(logger, message, contributor["name"], channel) as boundary:
                contribution = await settle(contributor["callback"]())
            if isinstance(boundary.error, asyncio.CancelledError):  # it wants everyone to stop
                break
            if contribution is not None:
                collected.append(contribution)
        return collected

    def intercept_tools(self, name: str, interceptor: ToolInterceptor) -> Callable[[], None]:
        """Have every call of a mounted tool go through `await interceptor(tool_name, tool, tool_input, proceed)`.

        That holds for tools that are mounted already or later, and for all callers. The interceptor runs the tool
        with `await proceed(tool_input)`, or answers in its place. It replaces an earlier one of the same name and is
        asked before those of other names that are there already. Returns what takes it back.

        Raises:
            TypeError: the mount point `tools` was replaced by a plain dict.
        """
        tools = self.mount_points["tools"]
        if not isinstance(tools, MountedTools):
            raise TypeError(f"the mount point tools is a {type(tools).__name__}, in which calls are not seen")
        interception = tools.intercept(name, interceptor)
        if mounting := current_mounting():
            mounting.note(interception)
        return interception.undo

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Carry out what hooks asked for: inject into the context, ask the user, show a message.

        Returns what is left for the orchestrator to honour: `continue` or `deny`, and ephemeral injections.
        Raises `ValueError` when an injection is larger than the `injection_size_limit` that the plan sets; nothing is
        injected then. Without one in the plan, what is too large is left out and reported as `policy:violation`.
        """
        return await self._hook_effects.carry_out(self, result, event, hook_name)

    def find_injector(self, text: str) -> tuple[str, str] | None:
        """Return the hook and the event of a text that was lately injected for one request only.

        Such a text is stored nowhere; this is how those who see the request can tell where it came from.
        """
        return self._hook_effects.find_injector(text)

    async def request_cancel(self, immediate: bool = False) -> None:
        """Ask the running turn to stop: after the tools in flight, or at once."""
        if immediate:
            self.cancellation.request_immediate()
        else:
            self.cancellation.request_graceful()

    def reset_turn(self) -> None:
        """Start counting hook injections again."""
        self._hook_effects.injected_tokens = 0

    def register_cleanup(self, cleanup_fn: Any) -> None:
        """Have a callable run when the session ends; anything else is ignored."""
        if callable(cleanup_fn):
            self._cleanups.append(cleanup_fn)
            if mounting := current_mounting():
                mounting.note_cleanup(self._cleanups, cleanup_fn)

    async def cleanup(self) -> None:
        """Run the registered cleanups, last one first, each once; errors are logged and the rest still run."""
        try:
            await run_cleanups(lambda: self._cleanups.pop() if self._cleanups else None)
        finally:
            if isinstance(tools := self.mount_points.get("tools"), MountedTools):
                tools.end_interception()

    def to_dict(self) -> dict[str, Any]:
        """Return a summary of what is mounted."""
        return {
            "tools": list(self.mount_points["tools"]),
            "providers": list(self.mount_points["providers"]),
            "has_orchestrator": self.mount_points["orchestrator"] is not None,
            "has_context": self.mount_points["context"] is not None,
            "capabilities": list(self._capabilities),
            "has_approval_provider": self.approval_system is not None,
            "has_display_service": self.display_system is not None,
        }

    def _point(self, mount_point: str, name: str | None) -> str:
        if mount_point == "session" and name in ("orchestrator", "context"):
            return name
        if mount_point not in self.mount_points:
            raise ValueError(f"Unknown mount point: {mount_point}")
        return mount_point

    def _session_setting(self, key: str, default: Any) -> Any:
        section = self.config.get("session") if isinstance(self.config, Mapping) else None
        return section.get(key, default) if isinstance(section, Mapping) else default


class _Contribution(NamedTuple):
    """A contributor on a channel."""

    channels: dict[str, list[dict[str, Any]]]
    channel: str
    contributor: dict[str, Any]

    def undo(self) -> None:
        contributors = self.channels.get(self.channel, [])
        contributors[:] = [other for other in contributors if other is not self.contributor]
        if not contributors:
            self.channels.pop(self.channel, None)
