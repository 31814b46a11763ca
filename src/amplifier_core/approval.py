"""How the kernel asks a person: an application gives the session an `ApprovalSystem`.

Hooks answer an event with `ask_user`; the coordinator then puts the question to the approval system. Modules that
bring an approval policy of their own use `interfaces.ApprovalProvider` instead.
"""

from typing import Literal, Protocol, runtime_checkable


class ApprovalTimeoutError(Exception):
    """There was no answer in time; the default of the request applies."""


@runtime_checkable
class ApprovalSystem(Protocol):
    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - how long to wait for a person, not for the coroutine
        default: Literal["allow", "deny"],
    ) -> str:
        """Ask, and return the chosen option; raise `ApprovalTimeoutError` after `timeout` seconds of silence."""
        ...
