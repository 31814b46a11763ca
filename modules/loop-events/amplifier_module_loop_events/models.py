"""What the loop asks schedulers, and what they answer; through hooks both travel as plain dicts with these keys."""

from dataclasses import dataclass, field
from typing import Any


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
