"""The permission level of a session on the page: chosen, shown, and plans that are accepted; what always counts."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from .page_daemon import PageDaemon
from .sample_sessions import ASKS, calls, create, plan_of
from .visits import visit

WRITES = calls("write_file", text="I write it.", file_path="planned.md", content="as planned\n")


def when(words: str, step: Any) -> dict[str, Any]:
    step = step if isinstance(step, dict) else {"text": step}
    return {**step, "when": {"contains": words, "role": "user"}}


def open_session(page: Page, daemon: PageDaemon, *script: Any) -> str:
    session_id = create(daemon, plan_of(*script, hooks=[ASKS]), "Planned")
    visit(page, f"/app/sessions/{session_id}")
    return session_id


def say(page: Page, text: str) -> None:
    field = page.get_by_role("textbox", name="Message to the agent")
    field.fill(text)
    field.press("Enter")


def test_a_plan_is_made_accepted_and_carried_out(page: Page, daemon: PageDaemon) -> None:
    session_id = open_session(page, daemon, when("Carry it out", WRITES), when("Think", "One step."), "It is done.")
    level = page.get_by_role("combobox", name="Permission level")
    expect(level).to_have_value("")
    level.select_option("plan")
    say(page, "Think")
    expect(page.get_by_text("The plan waits for you.")).to_be_visible()

    page.get_by_role("button", name="Accept, edit files freely").click()

    expect(page.get_by_role("log").get_by_text("It is done.")).to_be_visible()
    expect(level).to_have_value("edits")
    expect(page.get_by_text("The plan waits for you.")).to_be_hidden()
    assert (daemon.directory / "planned.md").read_text() == "as planned\n"
    assert daemon.api.get(f"/sessions/{session_id}").json()["permission_level"] == "edits"


def test_a_plan_is_changed_before_it_is_accepted(page: Page, daemon: PageDaemon) -> None:
    open_session(page, daemon, when("Think", "One step."))
    page.get_by_role("combobox", name="Permission level").select_option("plan")
    say(page, "Think")

    page.get_by_role("button", name="Accept, change it first").click()

    field = page.get_by_role("textbox", name="Message to the agent")
    expect(field).to_have_value("The plan is accepted as it stands here. Carry it out.\n\nOne step.")
    expect(page.get_by_role("combobox", name="Permission level")).to_have_value("ask")


def test_what_was_answered_with_always_is_listed_and_asked_about_again(page: Page, daemon: PageDaemon) -> None:
    session_id = open_session(page, daemon, WRITES, "Written.")
    say(page, "Write")
    page.get_by_role("button", name="Allow always").click()
    expect(page.get_by_role("log").get_by_text("Written.")).to_be_visible()

    page.get_by_role("button", name="Session actions").click()
    page.get_by_role("menuitem", name="Always approved…").click()
    dialog = page.get_by_role("dialog", name="Always approved")
    expect(dialog).to_contain_text("write_file: write files in ./")
    dialog.get_by_role("button", name="Ask again").click()
    expect(dialog.get_by_role("listitem")).to_have_count(0)

    assert daemon.api.get(f"/sessions/{session_id}/permissions").json()["remembered"] == []
