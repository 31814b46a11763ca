"""A session: one conversation, with the modules its mount plan names."""

import asyncio
import inspect
import logging
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import events
from .boundary import emit_quietly
from .bring_up import bring_up, redacted
from .coordinator import ModuleCoordinator
from .exceptions import MountPlanError, NoProviderError, text_of
from .hooks import HookRegistry
from .loader import ModuleLoader
from .models import SessionStatus
from .mount_plan import SESSION_MEMBERS, MountPlan

if TYPE_CHECKING:
    from .approval import ApprovalSystem
    from .display import DisplaySystem

__all__ = ["AmplifierSession"]

logger = logging.getLogger(__name__)

_kernel_emit = HookRegistry.emit


class AmplifierSession:
    """Mounts the modules of a plan, runs prompts on them, and ends them.

    `async with AmplifierSession(plan) as session:` initializes and cleans up. The plan is kept by reference.
    """

    # Named here so that a mock made after the class (`MagicMock(spec=AmplifierSession)`) has them as well.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "config",
        "coordinator",
        "loader",
        "parent_id",
        "session_id",
        "status",
    )

    def __init__(
        self,
        config: dict[str, Any],
        loader: ModuleLoader | None = None,
        session_id: str | None = None,
        parent_id: str | None = None,
        approval_system: "ApprovalSystem | None" = None,
        display_system: "DisplaySystem | None" = None,
        is_resumed: bool = False,
    ) -> None:
        _require_session_section(config)
        self.config = config
        self.session_id = session_id or str(uuid.uuid4())
        self.parent_id = parent_id
        self.status = SessionStatus(session_id=self.session_id)
        self.coordinator = ModuleCoordinator(self, approval_system, display_system)
        self.coordinator.hooks.set_default_fields(session_id=self.session_id, parent_id=self.parent_id)
        self._own_loader = ModuleLoader(coordinator=self.coordinator)
        self.loader: ModuleLoader | None = loader or self._own_loader
        self._is_resumed = is_resumed
        self._initialized = False
        self._initializing = asyncio.Lock()
        self._has_started = False
        self._has_ended = False
        self._coordinator_taken_by: tuple[Any, bool] = (None, False)

    @property
    def is_resumed(self) -> bool:
        return self._is_resumed

    @property
    def initialized(self) -> bool:
        return self._initialized

    async def initialize(self) -> None:
        """Load and mount the plan's modules; a second call does nothing.

        A missing orchestrator or context is fatal (`RuntimeError`); other modules that fail are skipped and listed
        in `status.load_failures`.
        """
        async with self._initializing:
            if self._initialized:
                return
            await bring_up(self, self._agree_on_loader())
            self._has_ended = False
            self._initialized = True

    async def execute(self, prompt: str) -> str:
        """Run one turn and return the orchestrator's answer; its exceptions come through as they are."""
        if not self._initialized:
            raise RuntimeError("Session not initialized. Call initialize() first.")
        await self._announce()
        coordinator = self.coordinator
        orchestrator, context, providers, tools = (
            coordinator.get(point) for point in ("orchestrator", "context", "providers", "tools")
        )
        if orchestrator is None:
            raise RuntimeError("No orchestrator module mounted")
        if context is None:
            raise RuntimeError("No context manager mounted")
        if not providers:
            raise NoProviderError(f"No providers mounted{self._why_no_provider()}")
        self.status.status = "running"
        extra = {"coordinator": coordinator} if self._takes_coordinator(orchestrator) else {}
        try:
            answer: str = await orchestrator.execute(
                prompt=prompt,
                context=context,
                providers=providers,
                tools={} if tools is None else tools,
                hooks=coordinator.hooks,
                **extra,
            )
        except BaseException as exc:
            await self._record_failure(exc)
            raise
        if coordinator.cancellation.is_cancelled:
            self.status.status = "cancelled"
            was_immediate = coordinator.cancellation.is_immediate
            await emit_quietly(coordinator.hooks, events.CANCEL_COMPLETED, {"was_immediate": was_immediate})
        else:
            self.status.status = "completed"
        return answer

    async def cleanup(self) -> None:
        """Emit `session:end`, run the modules' cleanups, release `sys.path`; may be called any number of times."""
        try:
            if self._initialized and not self._has_ended:
                self._has_ended = True
                await self._announce_end()
        finally:
            try:
                await self.coordinator.cleanup()
            finally:
                if self.loader is not None:
                    self.loader.cleanup()
                self._initialized = False

    async def __aenter__(self) -> Self:
        is_up = False
        try:
            await self.initialize()
            is_up = True
        finally:
            if not is_up:
                await self.cleanup()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cleanup()

    def _why_no_provider(self) -> str:
        """Return a line for each provider of the plan that could not be mounted, with its reason."""
        failures = (failure for failure in self.status.load_failures if failure["module_type"] == "provider")
        reasons = (f"{failure['module_id']}: {failure['error']}" for failure in failures)
        return "".join("\n  " + reason.replace("\n", "\n    ") for reason in reasons)

    async def _announce(self) -> None:
        """Emit the session's first event, once."""
        if self._has_started:
            return
        self._has_started = True
        event = events.SESSION_RESUME if self._is_resumed else events.SESSION_START
        payload: events.EventData = {"session_id": self.session_id, "parent_id": self.parent_id}
        if _may_be_heard(self.coordinator.hooks, event):
            payload["config"] = redacted(self.config)
        section = MountPlan(self.config).session
        if metadata := section.get("metadata"):
            payload["metadata"] = metadata
        await self.coordinator.hooks.emit(event, payload)
        if section.get("raw"):
            raw = {"session_id": self.session_id, "raw": redacted(self.config)}
            await self.coordinator.hooks.emit("session:config", raw)

    async def _announce_end(self) -> None:
        payload = {"session_id": self.session_id, "status": self.status.status, "stats": self.status.to_dict()}
        await emit_quietly(self.coordinator.hooks, events.SESSION_END, payload, level=logging.DEBUG)

    async def _record_failure(self, exc: BaseException) -> None:
        cancellation = self.coordinator.cancellation
        if not cancellation.is_cancelled:
            self.status.status = "failed"
            self.status.last_error = {"message": text_of(exc)}
            logger.error("Execution failed: %s", text_of(exc))
            return
        self.status.status = "cancelled"
        logger.info("Execution cancelled: %s", text_of(exc))
        if not isinstance(exc, GeneratorExit):  # a coroutine that is being closed may not wait any more
            payload = {"was_immediate": cancellation.is_immediate, "error": text_of(exc)}
            await emit_quietly(self.coordinator.hooks, events.CANCEL_COMPLETED, payload)

    def _agree_on_loader(self) -> ModuleLoader:
        """Return the loader for session and coordinator; the session's own makes way for one assigned over there."""
        if self.loader is None or self.loader is self._own_loader:
            self.loader = self.coordinator.loader or self._own_loader
        self._own_loader.coordinator = self.coordinator  # which may be another one by now
        self.coordinator.loader = self.loader
        return self.loader

    def _takes_coordinator(self, orchestrator: Any) -> bool:
        """True if the orchestrator's `execute` accepts `coordinator`; asked once for each orchestrator."""
        if self._coordinator_taken_by[0] is not orchestrator:
            try:
                parameters = inspect.signature(orchestrator.execute).parameters
            except (TypeError, ValueError):
                takes = False
            else:
                named = parameters.get("coordinator")
                takes = (named is not None and named.kind is not named.POSITIONAL_ONLY) or any(
                    parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
                )
            self._coordinator_taken_by = (orchestrator, takes)
        return self._coordinator_taken_by[1]


def _may_be_heard(hooks: Any, event: str) -> bool:
    """True if anyone listens; a stand-in for the registry, or for its `emit`, always does."""
    is_ours = isinstance(hooks, HookRegistry) and getattr(hooks.emit, "__func__", None) is _kernel_emit
    return not is_ours or hooks.has_handlers(event)


def _require_session_section(config: Any) -> None:
    if not config:
        raise MountPlanError("Configuration is required")
    if not isinstance(config, Mapping):
        raise MountPlanError(f"Configuration must be a mapping, got {type(config).__name__}")
    section = config.get("session", {})
    for name in SESSION_MEMBERS:
        if not isinstance(section, Mapping) or not section.get(name):
            raise MountPlanError(f"Configuration must specify session.{name}")
