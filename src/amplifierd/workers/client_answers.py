"""Who answers the questions of sessions in a worker: the clients of the daemon, unless a turn has no one to ask."""

from __future__ import annotations

from contextvars import ContextVar

from amplifierd.sessions.approval import Approval, ApprovalDecision
from amplifierd.sessions.approvers import DenyAll, LeaveOpen

nobody_answers: ContextVar[bool] = ContextVar("nobody_answers", default=False)
"""Whether the turn that runs in this context was asked for by a client that cannot answer questions."""


class ClientsAnswer:
    """Lets a question wait for a client; in a turn that has no one to ask, it is denied."""

    async def decide(self, approval: Approval) -> ApprovalDecision:
        return await (DenyAll() if nobody_answers.get() else LeaveOpen()).decide(approval)
