"""Running a tool call in which schedulers have a say: announce, decide, run."""

import logging
import time
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

from amplifier_core.utils.tool_schema import tool_schema
from amplifier_kit.loops.hook_points import Decision
from amplifier_kit.loops.scheduling import DECISION_TOOL, TOOL_SELECTED, TOOL_SELECTING
from amplifier_kit.loops.tool_calls import Outcome, ToolCalls, failure
from amplifier_kit.messages.conversation import result_text
from amplifier_kit.mounting import session_id_of

logger = logging.getLogger(__name__)

ERROR_TOOL = "error:tool"


class SelectingToolCalls(ToolCalls):
    """Offers every call to the schedulers before it runs; they may deny it or choose another tool."""

    decision_timeout_s: float | None = None  # how long each scheduler has to answer a decision event; None asks none

    async def answer(self, outcome: Outcome) -> None:
        call = outcome.call
        if call.problem:
            await super().answer(outcome)
            return
        outcome.tool_name = await self._resolve(call.name, call.arguments)
        payload = {
            "tool_name": outcome.tool_name,
            "tool_input": call.arguments,
            "tool_call_id": call.id,
            "available_tools": list(self.tools),
        }
        decision = await self.points.offer(TOOL_SELECTING, payload, outcome.tool_name)
        if decision.denied:
            outcome.content = f"Error: {decision.reason or 'Tool execution denied by scheduler'}"
            return
        self._choose(outcome, decision)
        is_override = outcome.tool_name != call.name
        selected = {
            "tool": outcome.tool_name,
            "tool_name": outcome.tool_name,
            "tool_input": outcome.arguments,
            "tool_call_id": call.id,
            "source": "scheduler" if is_override else "llm",
            "original_tool": call.name if is_override else None,
        }
        await self.points.emit(TOOL_SELECTED, selected)
        await self.consult_and_run(outcome)

    async def _resolve(self, name: str, arguments: dict[str, Any]) -> str:
        """Let the handlers of decision events choose; the highest score wins, the first among equals."""
        if self.decision_timeout_s is None:
            return name
        request = ToolResolutionRequest(
            event_id=str(uuid.uuid4()),
            timestamp=time.time(),
            session_id=session_id_of(self.coordinator) or "",
            available_tools=list(self.tools),
            context={"llm_selection": name, "tool_input": arguments},
        )
        answers = await self.points.collect(DECISION_TOOL, asdict(request), self.decision_timeout_s)
        scored = [answer for answer in answers if isinstance(answer.get("selected_tool"), str)]
        best = max(scored, key=_score, default=None)
        wanted = name if best is None else best["selected_tool"]
        return wanted if wanted == name or self._fits(wanted, name, arguments) else name

    def _choose(self, outcome: Outcome, decision: Decision) -> None:
        """Take over the tool and the arguments that hooks settled on, as far as they fit."""
        data, name, arguments = decision.data, outcome.tool_name, outcome.arguments
        choices = (data[key] for key in ("tool", "tool_name") if isinstance(data.get(key), str))
        wanted = next((choice for choice in choices if choice != name), name)
        given = data.get("arguments")
        changed = given if isinstance(given, dict) else decision.changed("tool_input", dict, arguments)
        if wanted == name or self._fits(wanted, name, arguments if changed is None else None):
            outcome.tool_name = wanted
            outcome.arguments = arguments if changed is None else changed

    def _fits(self, wanted: str, name: str, arguments: dict[str, Any] | None) -> bool:
        """True if a scheduler's choice can run; without arguments of its own it has to do with the model's."""
        if wanted not in self.tools:
            logger.warning("a scheduler chose tool %r, which is not mounted; %r runs", wanted, name)
            return False
        required = tool_schema(self.tools[wanted]).get("required") or [] if arguments is not None else []
        missing = [key for key in required if key not in (arguments or {})]
        if missing:
            logger.warning("a scheduler chose tool %r, which needs %s; %r runs", wanted, ", ".join(missing), name)
        return not missing

    def denied_text(self, reason: str) -> str:
        return f"Error: {reason or 'Tool execution denied'}"

    def internal_error_text(self, error: Exception) -> str:
        return f"Internal error executing tool: {error}"

    async def unknown_tool(self, outcome: Outcome) -> None:
        text = f"Tool {outcome.tool_name} not found"
        outcome.content = f"Error: {text}"
        await self.emit_error(outcome, "RuntimeError", text)
        error = {"error_type": "tool_not_found", "error_message": text, "severity": "medium"}
        await self.points.emit(ERROR_TOOL, error)

    async def tool_failed(self, outcome: Outcome, error: Exception) -> None:
        result = failure(error)
        outcome.content = result_text(result)
        await self.emit_error(outcome, type(error).__name__, str(error))
        details = {
            "error_type": "execution_failed",
            "error_message": str(error),
            "tool": outcome.tool_name,
            "severity": "high",
        }
        await self.points.emit(ERROR_TOOL, details)
        await self.report(outcome, result)


def _score(answer: dict[str, Any]) -> float:
    score = answer.get("score")
    return float(score) if isinstance(score, int | float) else 0.0


# What the loop asks schedulers, and what they answer; through hooks both travel as plain dicts with these keys.


@dataclass
class DecisionRequest:
    """A decision that handlers may take."""

    event_id: str
    timestamp: float
    session_id: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class ToolResolutionRequest(DecisionRequest):
    """Which tool is to run?"""

    available_tools: list[str] = field(default_factory=list)
    context: dict[str, Any] = field(default_factory=dict)


@dataclass
class ToolResolutionResponse:
    """This one; among several answers the highest score wins."""

    selected_tool: str
    score: float
    rationale: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class AgentResolutionRequest(DecisionRequest):
    """Which agent is to take a task?"""

    available_agents: list[str] = field(default_factory=list)
    task: str = ""
    context: dict[str, Any] = field(default_factory=dict)


@dataclass
class AgentResolutionResponse:
    """This one."""

    selected_agent: str
    score: float
    rationale: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class ContextResolutionRequest(DecisionRequest):
    """Is the context to be compacted?"""

    context_size: int = 0
    max_size: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class ContextResolutionResponse:
    """Whether, and how."""

    should_compact: bool
    compaction_strategy: str | None
    rationale: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class ErrorEvent:
    """Something went wrong, and what was done about it."""

    error_type: str
    error_code: str | None
    error_message: str
    stack_trace: str | None
    recovery_attempted: bool
    recovery_successful: bool
    fallback_used: str | None
    severity: str
    metadata: dict[str, Any] = field(default_factory=dict)
