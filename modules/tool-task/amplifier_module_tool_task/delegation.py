"""One delegation, from its first event to its last: it ends with a result, a failure, a time-out or a cancellation."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.events import TOOL_ERROR
from amplifier_core.exceptions import describe
from amplifier_kit.tools.input import ToolFailure

from .settings import CANCELLED, COMPLETED, RESUMED, SPAWNED, TIMED_OUT, Announcer, Event, TaskSettings

logger = logging.getLogger(__name__)

_FACTS = ("status", "turn_count", "metadata")


@dataclass(frozen=True, kw_only=True)
class Delegation(ABC):
    """What is done in another session: `work` does it. Subclasses differ in what is said about it."""

    sub_session_id: str
    parent_session_id: str | None
    work: Callable[[], Awaitable[Any]]
    agent: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What every event about the delegation carries."""
        agent = {} if self.agent is None else {"agent": self.agent}
        return {**agent, "sub_session_id": self.sub_session_id, "parent_session_id": self.parent_session_id}

    @property
    @abstractmethod
    def start(self) -> Event:
        """The event before it starts."""

    @property
    @abstractmethod
    def subject(self) -> dict[str, Any]:
        """What `tool:error` is about."""

    @abstractmethod
    def failure(self, error: Exception) -> ToolFailure:
        """Return what the model is told about an error."""

    def timed_out(self, timeout_s: float | None) -> ToolFailure:
        message = f"Delegation timed out after {timeout_s:g} seconds; the child session was cancelled"
        return ToolFailure(message, "DELEGATION_TIMEOUT", session_id=self.sub_session_id, agent=self.agent)

    def output(self, returned: Any) -> dict[str, Any]:
        """Return what the model is told about the child's answer."""
        if not isinstance(returned, Mapping) or returned.get("output") is None:
            raise ValueError("the child session returned no output")
        session_id = returned.get("session_id")
        output = {
            "response": returned["output"],
            "session_id": session_id if session_id and isinstance(session_id, str) else self.sub_session_id,
        }
        if self.agent is not None:
            output["agent"] = self.agent
        return output | {key: returned[key] for key in _FACTS if returned.get(key) is not None}


class Spawn(Delegation):
    """A task for an agent, in a new session."""

    @property
    def start(self) -> Event:
        return SPAWNED, self.identity

    @property
    def subject(self) -> dict[str, Any]:
        return self.identity

    def failure(self, error: Exception) -> ToolFailure:
        return ToolFailure(f"Delegation failed: {_text(error)}", "delegation_failed", type=type(error).__name__)


class Resume(Delegation):
    """Another task for a session that has done one already."""

    @property
    def start(self) -> Event:
        return RESUMED, self.subject

    @property
    def subject(self) -> dict[str, Any]:
        return {"session_id": self.sub_session_id, "parent_session_id": self.parent_session_id}

    def failure(self, error: Exception) -> ToolFailure:
        if isinstance(error, FileNotFoundError):
            message = f"Session '{self.sub_session_id}' not found; delegate to an agent to start a new one"
            return ToolFailure(message, "not_found")
        return ToolFailure(f"Resume failed: {_text(error)}", "delegation_failed", type=type(error).__name__)


class Delegations:
    """Runs the delegations of one session, as many at a time as the settings allow."""

    def __init__(self, announcer: Announcer, settings: TaskSettings) -> None:
        self._announcer = announcer
        self._timeout_s = settings.timeout_s
        self._places = asyncio.Semaphore(settings.max_concurrent) if settings.max_concurrent else nullcontext()

    async def run(self, delegation: Delegation) -> ToolResult:
        """Run a delegation when there is a place for it; the time for it starts then."""
        async with self._places:
            return await self._run(delegation)

    async def _run(self, delegation: Delegation) -> ToolResult:
        limit = asyncio.timeout(self._timeout_s)
        try:
            await self._announcer.tell(*delegation.start)
            async with limit:
                output = delegation.output(await delegation.work())
        except asyncio.CancelledError:
            await self._announcer.tell_surely(
                (CANCELLED, delegation.identity), _completed(delegation, error="the delegation was cancelled")
            )
            raise
        except Exception as exc:  # noqa: BLE001 - the application's own; `_fail` logs it
            return await self._fail(delegation, exc, has_expired=limit.expired())
        await self._announcer.tell_surely(_completed(delegation))
        return ToolResult(success=True, output=output)

    async def _fail(self, delegation: Delegation, error: Exception, *, has_expired: bool) -> ToolResult:
        """Announce a failure, and return it. If the time was over, that was the reason."""
        if has_expired:
            failure = delegation.timed_out(self._timeout_s)
            told, reason = [(TIMED_OUT, {**delegation.identity, "timeout": self._timeout_s})], failure.message
        else:
            failure, told, reason = delegation.failure(error), [], _text(error)
        if failure.code == "delegation_failed":
            logger.error("the delegation to session %s failed", delegation.sub_session_id, exc_info=error)
        problem = (TOOL_ERROR, {"tool": "task", **delegation.subject, "error": reason})
        await self._announcer.tell_surely(*told, _completed(delegation, error=reason), problem)
        return failure.result()


def _completed(delegation: Delegation, *, error: str | None = None) -> Event:
    success: dict[str, Any] = {"success": True} if error is None else {"success": False, "error": error}
    return COMPLETED, {**delegation.identity, **success}


def _text(error: Exception) -> str:
    return describe(error) or type(error).__name__
