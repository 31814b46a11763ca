"""What is told of a delegation by this tool: its events, and what the model reads at its end."""

from collections.abc import Sequence
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.events import TOOL_ERROR
from amplifier_kit.delegation.engine import Delegation, Event, Outcome, text_of_error
from amplifier_kit.tools.input import ToolFailure

SPAWNED = "task:agent_spawned"
RESUMED = "task:agent_resumed"
COMPLETED = "task:agent_completed"
TIMED_OUT = "task:agent_timeout"
CANCELLED = "task:agent_cancelled"

EVENTS = (SPAWNED, RESUMED, COMPLETED, TIMED_OUT, CANCELLED)


class TaskDelegation(Delegation):
    """A delegation whose last event is always that it is completed, whether it succeeded or not."""

    @property
    def subject(self) -> dict[str, Any]:
        """What `tool:error` is about."""
        return self.identity

    def failure(self, error: Exception) -> ToolFailure:
        """Return what the model is told about an error."""
        message = f"Delegation failed: {text_of_error(error)}"
        return ToolFailure(message, "delegation_failed", type=type(error).__name__)

    def done(self, returned: Any) -> Outcome:
        return ToolResult(success=True, output=self.answer(returned)), [self._completed()]

    def cancelled(self) -> Sequence[Event]:
        return (CANCELLED, self.identity), self._completed(error="the delegation was cancelled")

    async def failed(self, error: Exception) -> Outcome:
        return self._ended(self.failure(error), text_of_error(error))

    async def timed_out(self) -> Outcome:
        message = f"Delegation timed out after {self.timeout_s:g} seconds; the child session was cancelled"
        failure = ToolFailure(message, "DELEGATION_TIMEOUT", session_id=self.sub_session_id, agent=self.agent)
        return self._ended(failure, message, (TIMED_OUT, {**self.identity, "timeout": self.timeout_s}))

    def _ended(self, failure: ToolFailure, reason: str, *told: Event) -> Outcome:
        problem = (TOOL_ERROR, {"tool": "task", **self.subject, "error": reason})
        return failure.result(), [*told, self._completed(error=reason), problem]

    def _completed(self, *, error: str | None = None) -> Event:
        success: dict[str, Any] = {"success": True} if error is None else {"success": False, "error": error}
        return COMPLETED, {**self.identity, **success}


class Spawn(TaskDelegation):
    """A task for an agent, in a new session."""

    def started(self) -> Event:
        return SPAWNED, self.identity


class Resume(TaskDelegation):
    """Another task for a session that has done one already."""

    def started(self) -> Event:
        return RESUMED, self.subject

    @property
    def subject(self) -> dict[str, Any]:
        return {"session_id": self.sub_session_id, "parent_session_id": self.parent_session_id}

    def failure(self, error: Exception) -> ToolFailure:
        if isinstance(error, FileNotFoundError):
            message = f"Session '{self.sub_session_id}' not found; delegate to an agent to start a new one"
            return ToolFailure(message, "not_found")
        return ToolFailure(f"Resume failed: {text_of_error(error)}", "delegation_failed", type=type(error).__name__)
