"""Whatever a call consists of, the question at a terminal shows a visible form of each character that would run."""

from __future__ import annotations

import asyncio
import io
import json
from types import MappingProxyType
from typing import Any

import pyte
import pytest
from border_corpus import SAMPLES, hidden
from hypothesis import given
from hypothesis import strategies as st

from amplifier_cli.approval_prompt import TerminalApprover
from amplifier_cli.terminal.terminal_page import TerminalPage
from amplifier_core.interfaces import ApprovalRequest
from amplifier_kit.concerns import PendingCall, Scope, question_text
from amplifier_system.visible import visible_exactly
from amplifierd.sessions.questions.approval import Approval

ODD = [
    *"\u200c\u200d\ufe0f",
    *SAMPLES.values(),
    *sorted({character for sample in SAMPLES.values() for character in sample}),
]
TEXTS = st.lists(st.sampled_from(ODD) | st.text("ls -rm'$/;\n\té", max_size=8), max_size=20).map("".join)
INPUTS = st.dictionaries(TEXTS, TEXTS | st.booleans() | st.integers() | st.lists(TEXTS, max_size=3), max_size=4)
COLUMNS, ROWS = 100, 60


@pytest.fixture(scope="module", autouse=True)
def _a_window() -> Any:
    """A terminal of a known size."""
    patch = pytest.MonkeyPatch()
    patch.setenv("COLUMNS", str(COLUMNS))
    patch.setenv("LINES", "24")
    yield
    patch.undo()


def seen(prompt: str) -> str:
    """Return what an emulator of a terminal has shown when a question was read to its end, without plain whitespace."""
    emulator = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
    terminal = pyte.Stream(emulator)

    def tell(text: str) -> None:
        written = io.StringIO()
        TerminalPage(written).line(text)
        terminal.feed(written.getvalue().replace("\n", "\r\n"))

    async def ask(question: str) -> str:
        return "" if "shows more" in question else "n"

    asyncio.run(TerminalApprover(ask, tell).decide(Approval("s1", prompt, ("Allow once", "Deny"))))
    history = ["".join(line[column].data for column in sorted(line)) for line in emulator.history.top]
    return squeezed("".join([*history, *emulator.display]))


def squeezed(text: str) -> str:
    return "".join(text.split(" ")).replace("\n", "").replace("\t", "")


def forms(character: str) -> tuple[str, ...]:
    """Return how a character can be written so that it is seen: as Python does, or as JSON does."""
    return repr(character)[1:-1], json.dumps(character)[1:-1], f"\\u{ord(character):04x}", f"\\U{ord(character):08x}"


def asked(command: str, given: dict[str, Any]) -> str:
    action, whole = f"Execute: {command}", {"command": command, **given}
    request = ApprovalRequest(tool_name="bash", action=action, details=whole, risk_level="high")
    call = PendingCall(
        "bash",
        "bash",
        action,
        "high",
        frozenset({"execute"}),
        scopes=(Scope("bash", "exactly this call"),),
        input=MappingProxyType(whole),
        working_dir=f"/work/{command[:20]}",
    )
    return question_text(request, call)


@given(TEXTS, INPUTS)
def test_every_character_of_a_call_is_seen_in_its_question(command: str, given: dict[str, Any]) -> None:
    shown = seen(asked(command, given))

    assert hidden(shown) == set()
    for text in (command, *given, *(value for value in given.values() if isinstance(value, str))):
        odd = hidden(text) - {"\n", "\t"}
        assert [one for one in odd if not any(form in shown for form in forms(one))] == [], text
    for line in (line for text in (command, *given) for line in text.split("\n")):
        assert squeezed(visible_exactly(line)) in shown
