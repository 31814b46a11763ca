"""What is raised when a session may not do something."""

from __future__ import annotations


class PolicyError(PermissionError):
    """The session's policy forbids it; `rule` is the rule that did, `read.deny` for example."""

    def __init__(self, message: str, *, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule
