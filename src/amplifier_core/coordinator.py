"""The coordinator: one session's switchboard, where modules mount themselves and find each other."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .approval import ApprovalTimeoutError
from .boundary import Boundary, TaskBoundary, settle
from .cancellation import CancellationToken
from .events import POLICY_VIOLATION
from .hooks import HookRegistry, injected_items
from .models import ContextInjection, HookResult
from .mounting import COLLECTIONS, SLOTS, Cleanup, NotedDict, current_mounting, run_cleanups
from .tool_interception import MountedTools, ToolInterceptor
from .utils.serialize import sanitize_text
from .utils.timestamps import utc_timestamp

if TYPE_CHECKING:
    from .approval import ApprovalSystem
    from .display import DisplaySystem
    from .loader import ModuleLoader

logger = logging.getLogger(__name__)

__all__ = ["ModuleCoordinator"]


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
        """True if the plan itself limits the size of injections."""
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


_ALLOWING = frozenset({"allow", "allow once", "allow always"})
_SHOWN_CHARACTERS = 200
_KNOWN_INJECTORS = 256
_NOT_INJECTED: dict[str, Any] = {
    "action": "continue",
    "context_injection": None,
    "context_injection_role": "system",
    "ephemeral": False,
    "append_to_last_tool_result": False,
}


class HookEffects:
    """Carries out hook results for one session and counts the tokens they injected this turn."""

    def __init__(self) -> None:
        self.injected_tokens = 0
        self._injectors: dict[int, tuple[str, str]] = {}

    def find_injector(self, text: str) -> tuple[str, str] | None:
        """Return the hook and the event of a text that was lately injected for one request only."""
        return self._injectors.get(hash(text))

    async def carry_out(
        self, coordinator: "ModuleCoordinator", result: HookResult, event: str, hook_name: str
    ) -> HookResult:
        """Return what is left for the orchestrator to honour."""
        if result.action == "ask_user":
            return await _ask_user(coordinator, result)
        if result.action == "inject_context":
            return await self._inject(coordinator, result, event, hook_name)
        await _notify_user(coordinator, result, hook_name)
        return result

    async def _inject(
        self, coordinator: "ModuleCoordinator", result: HookResult, event: str, hook_name: str
    ) -> HookResult:
        items = await _within_limit(coordinator, _sanitized(result, event, hook_name))
        for item in items:
            self._count(item, coordinator.injection_budget_per_turn)
            if item.ephemeral:
                self._note_injector(item)
        await _notify_user(coordinator, result, hook_name)
        add_message = getattr(coordinator.get("context"), "add_message", None)
        if add_message is not None:
            for item in items:
                if not item.ephemeral:
                    await settle(add_message(_message(item)))
        return _remainder(result, [item for item in items if item.ephemeral])

    def _note_injector(self, item: ContextInjection) -> None:
        self._injectors[hash(item.content)] = (item.hook_name, item.event)
        if len(self._injectors) > _KNOWN_INJECTORS:
            del self._injectors[next(iter(self._injectors))]

    def _count(self, item: ContextInjection, budget: int | None) -> None:
        tokens = len(item.content) // 4
        if budget is not None and self.injected_tokens + tokens > budget:
            logger.warning(
                "Warning: Hook injection budget exceeded: %s on %s adds %d tokens to %d, the budget is %d",
                item.hook_name,
                item.event,
                tokens,
                self.injected_tokens,
                budget,
            )
        self.injected_tokens += tokens
        logger.info(
            "Hook context injection: hook=%s event=%s chars=%d role=%s tokens=%d ephemeral=%s",
            item.hook_name,
            item.event,
            len(item.content),
            item.role,
            tokens,
            item.ephemeral,
        )


def _sanitized(result: HookResult, event: str, hook_name: str) -> list[ContextInjection]:
    """Return what there is to inject: control characters removed, empty items dropped."""
    provenance = {} if getattr(result, "context_injections", None) else {"hook_name": hook_name, "event": event}
    items = (
        item.model_copy(update={"content": sanitize_text(item.content), **provenance})
        for item in injected_items(result)
    )
    return [item for item in items if item.content]


async def _within_limit(coordinator: "ModuleCoordinator", items: list[ContextInjection]) -> list[ContextInjection]:
    """Return the items that are small enough, and report the others.

    Raises `ValueError` instead if the plan itself sets the limit: the default never ends a turn.
    """
    limit = coordinator.injection_size_limit
    sizes = [len(item.content.encode()) for item in items]
    if limit is None or all(size <= limit for size in sizes):
        return items
    too_large = [(item, size) for item, size in zip(items, sizes, strict=True) if size > limit]
    for item, size in too_large:
        logger.error("hook %r on %r injects %d bytes; %d are allowed", item.hook_name, item.event, size, limit)
    if coordinator.has_own_size_limit:
        raise ValueError(f"Context injection exceeds {limit} bytes")
    for item, size in too_large:
        source = {"hook_name": item.hook_name, "event": item.event}
        violation = {"reason": "injection_size_limit", **source, "size": size, "limit": limit}
        await coordinator.hooks.emit(POLICY_VIOLATION, violation)
    return [item for item, size in zip(items, sizes, strict=True) if size <= limit]


def _message(item: ContextInjection) -> dict[str, Any]:
    return {
        "role": item.role,
        "content": item.content,
        "metadata": {
            "source": "hook",  # context managers keep messages that carry this
            "hook_name": item.hook_name,
            "event": item.event,
            "timestamp": utc_timestamp(),
            "requested_role": item.role,
            "ephemeral": False,
            "persisted": True,
        },
    }


def _remainder(result: HookResult, ephemeral: list[ContextInjection]) -> HookResult:
    """Return a copy of `result` that carries only the items the orchestrator itself puts into its next request."""
    if not ephemeral:
        return _copy(result, {**_NOT_INJECTED, "context_injections": []})
    return _copy(
        result,
        {
            "context_injections": ephemeral,
            "context_injection": "\n\n".join(item.content for item in ephemeral),
            "context_injection_role": ephemeral[0].role,
            "ephemeral": True,
            "append_to_last_tool_result": any(item.append_to_last_tool_result for item in ephemeral),
        },
    )


def _copy(result: HookResult, changes: dict[str, Any]) -> HookResult:
    if isinstance(result, HookResult):
        return result.model_copy(update=changes)
    fields = {name: getattr(result, name) for name in HookResult.model_fields if hasattr(result, name)}
    return HookResult.model_validate({**fields, **changes})


async def _ask_user(coordinator: "ModuleCoordinator", result: HookResult) -> HookResult:
    prompt = "Allow this operation?" if result.approval_prompt is None else result.approval_prompt
    options = ["Allow", "Deny"] if result.approval_options is None else result.approval_options
    if coordinator.approval_system is None:
        logger.error("a hook asks the user, but the session has no approval system: denied")
        return HookResult(action="deny", reason="No approval system available")
    try:
        decision = await settle(
            coordinator.approval_system.request_approval(
                prompt, options, result.approval_timeout, result.approval_default
            )
        )
    except ApprovalTimeoutError:
        if _allows(result.approval_default):
            return HookResult(action="continue")
        return HookResult(action="deny", reason=f"Approval timeout - denied by default: {_cut(prompt)}")
    if _allows(decision):
        return HookResult(action="continue")
    if decision.lower() != "deny":
        logger.warning("approval answer %r is not one that allows; it counts as deny", decision)
    return HookResult(action="deny", reason=f"User denied: {_cut(prompt)}")


async def _notify_user(coordinator: "ModuleCoordinator", result: HookResult, hook_name: str) -> None:
    if result.user_message:
        source = hook_name if result.user_message_source is None else result.user_message_source
        if coordinator.display_system is None:
            logger.info("message from hook %s (%s): %s", source, result.user_message_level, _cut(result.user_message))
        else:
            with Boundary(logger, "the display cannot show a message from hook %s: %s", source, level=logging.ERROR):
                show_message: Callable[..., Any] = coordinator.display_system.show_message  # some displays are async
                await settle(show_message(result.user_message, result.user_message_level, f"hook:{source}"))
    if result.suppress_output:
        logger.debug("hook %s asks to suppress output", hook_name)


def _allows(decision: Any) -> bool:
    if not isinstance(decision, str):
        raise TypeError(f"an approval decision must be a str, got {type(decision).__name__}")
    return decision.lower() in _ALLOWING


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...[truncated]"
