"""The question whether an agent may do something, put to the person at the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence

from amplifierd.sessions.approval import ALLOW, DENY, Approval, ApprovalDecision
from amplifierd.sessions.approvers import AllowByRule, ApprovalRule, Approver, DenyAll

from .failures import say
from .notification import How, notify

Ask = Callable[[str], Awaitable[str]]
Tell = Callable[[str], None]

_USUAL = frozenset({"allow", "deny", "allow once", "allow always", "deny once", "deny always"})
_NO_TERMINAL = "There is no terminal to ask on; amplifier run --yes answers yes to all questions"


def yes_to_all() -> Approver:
    """Return who allows everything that is asked; what policy and guards refuse is not asked."""
    return AllowByRule([ApprovalRule(risk="critical")])


def no_terminal() -> Approver:
    """Return an approver that denies, since there is no one to ask."""
    return DenyAll(_NO_TERMINAL)


class TerminalApprover:
    """Asks at the terminal, one question at a time. `ask` shows a line and returns what was typed.

    It may raise `EOFError` or `KeyboardInterrupt`: both are a no.
    """

    def __init__(self, ask: Ask, tell: Tell) -> None:
        self._ask, self._tell = ask, tell

    async def decide(self, approval: Approval) -> ApprovalDecision:
        self._tell(f"\n{approval.prompt}")
        while True:
            try:
                typed = await self._ask(f"{choices(approval)} > ")
            except (EOFError, KeyboardInterrupt):
                return ApprovalDecision(DENY, "The person stopped here")
            decision = read_answer(typed, approval)
            if decision is not None:
                return decision
            self._tell(f"Please answer with one of: {choices(approval)}")


def choices(approval: Approval) -> str:
    """Return the possible answers in a line."""
    own = _own_options(approval)
    if own:
        return ", ".join(f"[{number}] {option}" for number, option in enumerate(own, start=1))
    always = ", [a]lways in this session" if _has_always(approval) else ""
    return f"[y]es, once{always}, [n]o, or: n REASON"


def read_answer(typed: str, approval: Approval) -> ApprovalDecision | None:
    """Return what a person decided, None when it cannot be understood."""
    word, _, rest = typed.strip().partition(" ")
    own = _own_options(approval)
    if own:
        return _own_answer(typed.strip(), own)
    match word.casefold():
        case "y" | "yes":
            return ApprovalDecision(ALLOW)
        case "a" | "always" if _has_always(approval):
            return ApprovalDecision(ALLOW, remember=True)
        case "n" | "no":
            return ApprovalDecision(DENY, rest.strip() or "The person said no")
    return None


def _own_options(approval: Approval) -> Sequence[str]:
    """Return the options of a question that knows others than yes and no."""
    return () if {option.casefold() for option in approval.options} <= _USUAL else approval.options


def _own_answer(typed: str, options: Sequence[str]) -> ApprovalDecision | None:
    if typed.isdecimal() and 1 <= int(typed) <= len(options):
        return ApprovalDecision(options[int(typed) - 1])
    found = next((option for option in options if option.casefold() == typed.casefold()), None)
    return None if found is None else ApprovalDecision(found)


def _has_always(approval: Approval) -> bool:
    return approval.remember_key is not None


def approver_for(*, yes: bool, how: How = "none") -> Approver:
    """Return who answers the questions of a session; `how` says in what way a person is called to the terminal."""
    if yes:
        return yes_to_all()
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return no_terminal()

    async def ask(question: str) -> str:
        notify("the agent is waiting for an answer", how, sys.stderr)
        return await _ask(question)

    return TerminalApprover(ask, say)


async def _ask(question: str) -> str:
    """Ask at the terminal; Ctrl-C there is a no, and stops the turn as it does elsewhere."""
    from prompt_toolkit import PromptSession  # loaded when there is something to ask
    from prompt_toolkit.output.defaults import create_output

    asking = PromptSession[str](output=create_output(stdout=sys.stderr))
    try:
        return await asking.prompt_async(question, handle_sigint=False)
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)
        raise EOFError from None
