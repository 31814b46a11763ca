"""Names, prompts, answers, outputs and file names that want more than to be read: in the browser they get nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hostile import BROKEN, LINKS, ODD, SCRIPTS
from playwright.sync_api import Dialog, Locator, Page, expect

from .chromium import Complaints
from .page_daemon import PageDaemon
from .sample_sessions import calls, create, plan_of, transcript_of
from .visits import visit

END = "The end of it."
KINDS = {"scripts": SCRIPTS, "links": LINKS, "broken markup": BROKEN, "odd characters": ODD}

OUT_OF_THE_BOX = """
(log) => {
  const wrong = log.querySelector(".prose:not(.is-plain)") ? [] : ["nothing was rendered"];
  for (const box of log.querySelectorAll(".prose")) {
    for (const element of box.querySelectorAll("*")) {
      const name = element.localName;
      const style = getComputedStyle(element);
      if (element.closest(".code-frame button")) continue;
      if (/^(script|style|iframe|object|embed|form|input|base|meta|link|svg|math)$/.test(name)) wrong.push(name);
      if (name.includes("-")) wrong.push(name);
      if (element.id) wrong.push(`id ${element.id}`);
      for (const { name: attribute } of element.attributes) if (attribute.startsWith("on")) wrong.push(attribute);
      if (["fixed", "sticky"].includes(style.position)) wrong.push(`${name} is ${style.position}`);
      const { left, right } = element.getBoundingClientRect();
      const { left: from, right: to } = box.getBoundingClientRect();
      const scrolls = element.closest(".code-frame, .md-table, pre");
      if (!scrolls && (left < from - 40 || right > to + 1)) wrong.push(`${name} sticks out`);
    }
    for (const link of box.querySelectorAll("a[href]")) {
      if (!/^(https?:\\/\\/|mailto:)/.test(link.getAttribute("href"))) wrong.push(link.outerHTML);
      if (link.target !== "_blank" || !link.relList.contains("noopener")) wrong.push(link.outerHTML);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page scrolls sideways");
  return wrong;
}
"""


@pytest.fixture(autouse=True)
def silence(page: Page, complaints: Complaints) -> Iterator[None]:
    """A script that runs says so with a dialog."""

    def complain(dialog: Dialog) -> None:
        complaints.found.append(f"a script ran: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", complain)
    yield
    page.remove_listener("dialog", complain)


def show(page: Page, session_id: str) -> Locator:
    visit(page, f"/app/sessions/{session_id}")
    expect(page.get_by_role("textbox", name="Message to the agent")).to_be_visible()
    return page.get_by_role("log")


@pytest.mark.parametrize("texts", KINDS.values(), ids=KINDS.keys())
def test_prompts_and_answers_are_only_read(page: Page, daemon: PageDaemon, texts: list[str]) -> None:
    fine = [text.encode("utf-8", "replace").decode() for text in texts]
    answer = "\n\n".join([*fine, END])
    session_id = create(daemon, plan_of(answer), fine[0][:100])
    daemon.run(session_id, "\n\n".join(fine))

    log = show(page, session_id)

    expect(log.get_by_text(END)).to_be_visible()
    assert log.evaluate(OUT_OF_THE_BOX) == []


def test_what_comes_while_one_watches_is_only_read(page: Page, daemon: PageDaemon) -> None:
    answer = "\n\n".join([*SCRIPTS[:20], *BROKEN, END])
    session_id = create(daemon, plan_of(answer), "Streams")
    log = show(page, session_id)

    daemon.begin(session_id, SCRIPTS[3])

    expect(log.get_by_text(END)).to_be_visible()
    assert log.evaluate(OUT_OF_THE_BOX) == []


def test_names_of_sessions_and_files_and_outputs_of_tools_are_only_read(page: Page, daemon: PageDaemon) -> None:
    name = "<img src=x onerror=alert(1)> \u202e.md"
    (daemon.directory / name).write_text("\n".join([*SCRIPTS, *ODD[:5]]))
    reads = calls("read_file", file_path=name)
    session_id = create(daemon, plan_of(reads, END), "<script>alert(1)</script> \x1b[31m\u202e name")
    daemon.run(session_id, "read it")

    log = show(page, session_id)
    card = log.locator("tool-card")
    card.locator("summary").first.click()
    expect(card).to_contain_text("onerror=alert(1)")
    visit(page, "/app/")
    expect(page.get_by_text("<script>alert(1)</script>").first).to_be_visible()

    assert page.evaluate("document.querySelectorAll('script:not([src])').length") == 0


def test_a_line_of_ten_megabytes_is_shown_without_its_end(page: Page, daemon: PageDaemon) -> None:
    session_id = create(daemon, plan_of(), "Long")
    said = {"id": "msg_long", "timestamp": "2026-01-01T00:00:00.000000Z", "turn": 1, "role": "assistant"}
    transcript_of(daemon, session_id).write_text(f"{json.dumps({**said, 'content': 'x' * 10_000_000})}\n")

    log = show(page, session_id)

    expect(log.get_by_text("more characters")).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
