"""A tree of sessions at work: a root, the children that agents run in, and what all of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amplifier_core.display import DisplaySystem

from .approvals import ApprovalQueue
from .tree_budget import TreeBudget
from .tree_events import TreeEvents

if TYPE_CHECKING:
    from .runner import ExecutionRunner


@dataclass
class SessionTree:
    """One counter of events, one budget, one queue of approvals, and one display for all of them."""

    events: TreeEvents
    budget: TreeBudget
    approvals: ApprovalQueue
    display: DisplaySystem | None = None
    runners: dict[str, ExecutionRunner] = field(default_factory=dict)
