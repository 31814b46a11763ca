"""A tree of sessions at work: a root, the children that agents run in, and what all of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amplifier_core.display import DisplaySystem
from amplifier_system.permission_levels import Permissions
from amplifierd.sessions.events.tree_events import TreeEvents
from amplifierd.sessions.layers.tree_budget import TreeBudget
from amplifierd.sessions.questions.approvals import ApprovalQueue
from amplifierd.store.protocol import Hold, SessionStore

if TYPE_CHECKING:
    from .runner import ExecutionRunner


@dataclass
class SessionTree:
    """One counter of events, one budget, one queue of approvals, one permission level and one display for all of them.

    `hold` is that of the root, under which everything is written that belongs to the tree as a whole.
    """

    store: SessionStore
    hold: Hold
    events: TreeEvents
    budget: TreeBudget
    approvals: ApprovalQueue
    permissions: Permissions = field(default_factory=Permissions)
    display: DisplaySystem | None = None
    runners: dict[str, ExecutionRunner] = field(default_factory=dict)

    async def keep_usage(self) -> None:
        """Store what the whole tree used so far in the record of its root."""
        record = await self.store.update(self.hold, usage_tree=self.budget.used.to_json())
        root = self.runners.get(self.events.root_session_id)
        if root is not None:
            root.record = record
