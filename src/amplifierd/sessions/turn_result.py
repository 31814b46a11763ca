"""What came of a turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

TurnStatus = Literal["completed", "failed", "cancelled"]
ToolStatus = Literal["done", "failed", "denied", "not_run", "cancelled"]


@dataclass(frozen=True)
class ToolCallSummary:
    """A tool call of a turn, and what became of it."""

    id: str
    name: str
    status: ToolStatus


@dataclass(frozen=True)
class TurnResult:
    """A turn that ended. `usage` is what it used, its children included; a cost of None is unknown, not zero.

    `client_calls` are calls to tools that only the client can run, as `{id, name, arguments}`.
    """

    response: str
    status: TurnStatus
    session_id: str
    turn: int
    correlation_id: str
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    tool_calls: tuple[ToolCallSummary, ...] = ()
    error: dict[str, Any] | None = None
    client_calls: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "tool_calls": [vars(call) for call in self.tool_calls]}
