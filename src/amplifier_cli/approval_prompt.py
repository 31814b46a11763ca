"""The question whether an agent may do something, put to the person at the terminal."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence

from amplifier_cli.terminal.render import How, notify
from amplifier_system.visible import visible_exactly, visible_line
from amplifierd.sessions.questions.approval import (
    ALLOW,
    DENY,
    AllowByRule,
    Approval,
    ApprovalDecision,
    ApprovalRule,
    Approver,
    DenyAll,
)

from .failures import say

Ask = Callable[[str], Awaitable[str]]
Show = Callable[[str], None]

_USUAL = frozenset({"allow", "deny", "allow once", "allow always", "deny once", "deny always"})
_STOPPED = "The person stopped here"
_LINES_FOR_THE_ANSWER = 4
_FEWEST_LINES = 5
_NO_TERMINAL = "There is no terminal to ask on; amplifier run --yes answers yes to all questions"


def yes_to_all() -> Approver:
    """Return who allows everything that is asked; what policy and guards refuse is not asked."""
    return AllowByRule([ApprovalRule(risk="critical")])


def no_terminal() -> Approver:
    """Return an approver that denies, since there is no one to ask."""
    return DenyAll(_NO_TERMINAL)


class TerminalApprover:
    """Asks at the terminal, one question at a time. `ask` shows a line and returns what was typed.

    It may raise `EOFError` or `KeyboardInterrupt`: both are a no. A question that does not fit on the screen is shown
    page by page; the answers come after the last one.
    """

    def __init__(self, ask: Ask, show: Show) -> None:
        self._ask, self._show = ask, show
        self._one_at_a_time = asyncio.Lock()

    async def decide(self, approval: Approval) -> ApprovalDecision:
        async with self._one_at_a_time:
            try:
                return await self._decide(approval)
            except (EOFError, KeyboardInterrupt):
                return ApprovalDecision(DENY, _STOPPED)

    async def _decide(self, approval: Approval) -> ApprovalDecision:
        text = visible_exactly(approval.prompt)
        pages = pages_of(text, *shutil.get_terminal_size())
        pages = pages if len(pages) > 1 else [text]
        for number, page in enumerate(pages, start=1):
            self._show(f"\n{page}" if number == 1 else page)
            if number < len(pages):
                length = f"{len(approval.prompt):,} characters"
                typed = await self._ask(f"page {number} of {len(pages)}, {length}: [Enter] shows more, [n]o > ")
                if typed.strip().casefold() in ("n", "no"):
                    return ApprovalDecision(DENY, "The person said no")
        while True:
            decision = read_answer(await self._ask(f"{choices(approval)} > "), approval)
            if decision is not None:
                return decision
            self._show(f"Please answer with one of: {choices(approval)}")


def pages_of(text: str, columns: int, rows: int) -> list[str]:
    """Return a text in pieces that fit on the screen; a line that is too long goes on in the next."""
    width, height = max(columns, 1), max(rows - _LINES_FOR_THE_ANSWER, _FEWEST_LINES)
    lines = [piece for line in text.split("\n") for piece in _pieces(line.expandtabs(), width)]
    return ["\n".join(lines[place : place + height]) for place in range(0, len(lines), height)]


def _pieces(line: str, width: int) -> list[str]:
    return [line[place : place + width] for place in range(0, len(line), width)] or [""]


def choices(approval: Approval) -> str:
    """Return the possible answers in a line."""
    own = _own_options(approval)
    if own:
        return ", ".join(f"[{number}] {visible_line(option)}" for number, option in enumerate(own, start=1))
    always = ", [a]lways in session, [h]ere, [e]verywhere" if approval.scopes else ""
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
        case "a" | "always" if approval.scopes and not rest:
            return ApprovalDecision(ALLOW, remember="session")
        case "h" | "here" if approval.scopes:
            return ApprovalDecision(ALLOW, remember="project")
        case "e" | "everywhere" if approval.scopes:
            return ApprovalDecision(ALLOW, remember="everywhere")
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
    from prompt_toolkit.output.defaults import create_output  # loaded when there is something to ask

    from amplifier_cli.terminal.prompt_screen import new_prompt

    asking = new_prompt(output=create_output(stdout=sys.stderr))
    try:
        return await asking.prompt_async(question, handle_sigint=False)
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)
        raise EOFError from None
