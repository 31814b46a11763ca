"""A question at the terminal: all of it, harmless, and answered once for as far as the person says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import call, plan_file
from terminal import Terminal

from amplifier_cli.approval_prompt import TerminalApprover, pages_of
from amplifier_kit.concerns import Scope
from amplifier_system.visible import visible_exactly
from amplifierd.sessions.questions.approval import Approval, ApprovalDecision


class Person:
    """Types what is scripted, and keeps what was shown."""

    def __init__(self, *typed: str) -> None:
        self._typed, self.shown, self.asked = list(typed), [], []  # type: ignore[var-annotated]

    async def decide(self, prompt: str, **known: Any) -> ApprovalDecision:
        approval = Approval("s1", prompt, ("Allow once", "Allow always", "Deny"), **known)
        return await TerminalApprover(self._ask, self.shown.append).decide(approval)

    async def _ask(self, question: str) -> str:
        self.asked.append(question)
        if not self._typed:
            raise EOFError
        return self._typed.pop(0)


async def test_what_is_asked_is_shown_without_a_character_that_a_terminal_obeys() -> None:
    person = Person("n")

    await person.decide("Execute: touch x\x1b[2K\x1b[1GExecute: ls -la\u202e\u200b (risk: high)")

    assert person.shown == ["\nExecute: touch x\\x1b[2K\\x1b[1GExecute: ls -la\\u202e\\u200b (risk: high)"]


@pytest.mark.parametrize(
    ("typed", "reach"), [("y", False), ("a", "session"), ("h", "project"), ("everywhere", "everywhere")]
)
async def test_an_answer_reaches_as_far_as_the_person_says(typed: str, reach: Any) -> None:
    decision = await Person(typed).decide("Go on?", scopes=(Scope("bash", "pytest …"),))

    assert (decision.decision, decision.remember) == ("allow", reach)


async def test_always_is_not_an_answer_where_nothing_is_alike() -> None:
    person = Person("a", "h", "e")

    assert (await person.decide("Go on?")).decision == "deny"
    assert "[a]lways" not in person.asked[0]


async def test_a_long_question_is_shown_page_by_page_with_its_length_before_it_can_be_answered() -> None:
    prompt = "\n".join(f"line {number}" for number in range(100))
    person = Person(*["y"] * 20)

    assert (await person.decide(prompt)).decision == "allow"

    assert "\n".join(person.shown).strip().split("\n") == prompt.split("\n")
    assert person.asked[0].startswith("page 1 of 5, 789 characters: [Enter] shows more")
    assert sum("[y]es, once" in question for question in person.asked) == 1


async def test_a_long_question_can_be_denied_on_any_page() -> None:
    person = Person("", "n")

    assert (await person.decide("x\n" * 100)).decision == "deny"
    assert len(person.shown) == 2


@given(st.text(), st.integers(1, 100), st.integers(1, 50))
def test_pages_hold_every_character_that_is_asked_about(text: str, columns: int, rows: int) -> None:
    shown = visible_exactly(text).expandtabs()

    pages = pages_of(shown, columns, rows)

    assert "".join(pages).replace("\n", "") == shown.replace("\n", "")
    assert all(len(line) <= columns for page in pages for line in page.split("\n"))


def test_a_command_that_would_repaint_the_question_is_seen_at_a_real_terminal(amplifier: Any) -> None:
    hidden = "touch made #\x1b[2K\x1b[1GExecute: ls -la"
    plan = plan_file(amplifier.work, [call("bash", command=hidden, run_in_background=True), "Made."], guarded=True)
    terminal = Terminal(amplifier, "run", "--plan", plan, "Make it")

    terminal.expect("Execute: touch made #\\x1b[2K\\x1b[1GExecute: ls -la")
    terminal.expect("run_in_background: true")
    terminal.expect("always covers: exactly this call")
    terminal.expect("[n]o, or: n REASON >")
    terminal.type("n")
    terminal.end()

    assert not (amplifier.work / "made").exists()


def test_always_everywhere_is_asked_once_for_all_sessions(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("bash", command="python3 -c pass"), "Done."], guarded=True)
    first = Terminal(amplifier, "run", "--plan", plan, "Go")
    first.expect("always covers: exactly this call")
    first.expect("[n]o, or: n REASON >")
    first.type("e")
    first.expect("Done.")
    assert first.end() == 0

    later = amplifier("run", "--plan", plan, "Go")

    assert (later.returncode, "Done." in later.stdout, "denied" in later.stderr) == (0, True, False)
    assert "exactly: python3 -c pass" in (amplifier.home / "config/approvals.yaml").read_text()
