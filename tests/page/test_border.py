"""The page shows what is: every character that comes from outside is seen, and none is obeyed."""

from __future__ import annotations

import json
import sys
import unicodedata

from border_corpus import LINES, SAMPLES, hidden
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from amplifier_core.interfaces import ApprovalRequest
from amplifier_kit.concerns import question_text
from amplifier_system.visible import visible, visible_exactly

from .page_daemon import PageDaemon
from .sample_sessions import calls, create, plan_of
from .visits import visit

END = "The end of it."
ODD = "".join(SAMPLES.values())
COMMANDS = st.lists(
    st.text(st.one_of(st.sampled_from(ODD), st.characters(min_codepoint=32, max_codepoint=126)), min_size=1),
    max_size=20,
)
JOINERS = "\u200c\u200d\ufe0f"
"""What a question shows, and other texts keep."""

QUESTIONED = st.lists(st.text(st.sampled_from([*ODD, *JOINERS * 9, *"ls -rm'$/;"]), min_size=1), max_size=20)
TWIN = """
async (texts) => {
  const { visible, visibleExactly } = await import("/app/lib/visible.js");
  return JSON.parse(texts).map((text) => [visible(text), visibleExactly(text)]);
}
"""
SHOWN = """
async (texts) => {
  const { toolInput } = await import("/app/components/tool-input.js");
  const boxes = JSON.parse(texts).map((command) => toolInput({ name: "bash", input: { command } }));
  document.body.append(...boxes);
  const shown = boxes.map((box) => box.querySelector("pre").innerText);
  boxes.forEach((box) => box.remove());
  return shown;
}
"""
QUESTIONS = """
async (texts) => {
  const { approvalBox } = await import("/app/components/approval-box.js");
  const boxes = JSON.parse(texts).map((prompt) => approvalBox({ prompt, action: prompt, options: [prompt, "Deny"] }));
  document.body.append(...boxes);
  const shown = boxes.map((box) => [box.querySelector("pre").innerText, box.querySelector("button").innerText]);
  boxes.forEach((box) => box.remove());
  return shown;
}
"""

EVERYTHING = """
() => {
  const inside = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  const found = [document.title];
  while (inside.nextNode()) {
    const node = inside.currentNode;
    if (node instanceof Text) found.push(node.data);
    else for (const name of ["aria-label", "title", "alt", "placeholder"]) found.push(node.getAttribute(name) ?? "");
  }
  return found.join("\\n");
}
"""


def test_the_border_of_the_page_is_that_of_the_command(page: Page, daemon: PageDaemon) -> None:
    visit(page, "/app/")
    known = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Co")]
    edges = ["\ue000", "\ufffe", "\U000f0000", "\U0010ffff"]

    shown = page.evaluate(TWIN, json.dumps([*known, *edges, *LINES]))

    assert shown == [[visible(text), visible_exactly(text)] for text in [*known, *edges, *LINES]]


def test_names_prompts_answers_inputs_and_outputs_are_seen_and_not_obeyed(page: Page, daemon: PageDaemon) -> None:
    text = "\n\n".join(LINES)
    (daemon.directory / "odd.txt").write_text(text, encoding="utf-8", newline="")
    script = [
        calls("read_file", text=text, file_path="odd.txt"),
        calls("edit_file", file_path="odd.txt" + ODD[:20], old_string=text, new_string=f"{text}!"),
        calls(f"no{ODD}", **{f"key{ODD}": f"value{ODD}"}),
        f"{text}\n\n{END}",
    ]
    session_id = create(daemon, plan_of(*script), f"name {''.join(LINES)[:150]}")
    daemon.run(session_id, text)

    visit(page, f"/app/sessions/{session_id}")
    log = page.get_by_role("log")
    expect(log.get_by_text(END)).to_be_visible()
    for summary in log.locator("tool-card summary").all():
        summary.click()
    said = log.inner_text()
    assert [line for line in LINES if visible(line) not in said] == []
    for path in (f"/app/sessions/{session_id}", "/app/", f"/app/sessions/{session_id}/timeline", "/app/daemon"):
        visit(page, path)
        expect(page.get_by_role("main")).not_to_contain_text("Loading")
        assert hidden(page.evaluate(EVERYTHING)) == set(), path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(COMMANDS)
def test_every_character_of_a_command_has_a_visible_form(page: Page, daemon: PageDaemon, commands: list[str]) -> None:
    if not page.evaluate("Boolean(document.querySelector('page-frame'))"):
        visit(page, "/app/")

    shown = page.evaluate(SHOWN, json.dumps(commands))

    assert shown == [visible(f"$ {command}") for command in commands]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(QUESTIONED)
def test_every_character_of_a_question_has_a_visible_form(page: Page, daemon: PageDaemon, texts: list[str]) -> None:
    """What is asked about is one command, and one field and its name that are shown as JSON beside it."""
    if not page.evaluate("Boolean(document.querySelector('page-frame'))"):
        visit(page, "/app/")
    fields = [{"command": text, f"field {text}": text, "env": {text: [text]}} for text in texts]
    requests = [
        ApprovalRequest(tool_name="bash", action=f"Execute: {given['command']}", details=given, risk_level="high")
        for given in fields
    ]
    prompts = [question_text(request) for request in requests]

    shown = page.evaluate(QUESTIONS, json.dumps(prompts))

    assert [question for question, _ in shown] == [visible_exactly(prompt) for prompt in prompts]
    assert hidden("".join(text for pair in shown for text in pair)) == set()
