"""The inbox: questions of all sessions, answered in one place."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from .page_daemon import PageDaemon
from .visits import visit

GUARDED = {"tools": True, "hooks": [{"module": "hooks-approval"}]}


def writing(path: str) -> dict[str, object]:
    """A call that `hooks-approval` asks about."""
    call = {"id": f"call_{path}", "name": "write_file", "arguments": {"file_path": path, "content": "x"}}
    return {"tool_calls": [call]}


def test_questions_of_two_sessions_are_answered_and_go(page: Page, daemon: PageDaemon) -> None:
    yes = daemon.session(writing("allowed.txt"), "Written.", name="Asks first", **GUARDED)
    no = daemon.session(writing("denied.txt"), "Not written.", name="Asks second", **GUARDED)
    visit(page, "/app/")
    page.get_by_role("link", name="Inbox").click()
    expect(page.get_by_text("Nothing is waiting for you")).to_be_visible()

    daemon.begin(yes, "write")
    first = page.get_by_role("listitem").filter(has_text="Asks first").filter(has_text="allowed.txt")
    expect(first).to_be_visible()
    page.get_by_role("link", name="Inbox").focus()
    daemon.begin(no, "write")
    second = page.get_by_role("listitem").filter(has_text="Asks second").filter(has_text="denied.txt")
    expect(second).to_be_visible()
    expect(page.get_by_label("2 questions")).to_be_visible()
    expect(page.get_by_role("link", name="Inbox")).to_be_focused()

    first.get_by_role("button", name="Allow once").click()
    expect(first).to_have_count(0)
    reason = second.get_by_label("Reason for denying")
    reason.fill("Not in this directory")
    daemon.session(name="Made while somebody writes")
    expect(page.get_by_role("link", name="Made while somebody writes")).to_be_visible()
    expect(reason).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing is waiting for you")).to_be_visible()

    visit(page, f"/app/sessions/{no}")
    expect(page.get_by_text("Not written.")).to_be_visible()
    assert (daemon.directory / "allowed.txt").read_text() == "x"
    assert not (daemon.directory / "denied.txt").exists()


def test_questions_are_reached_and_answered_with_keys_alone(page: Page, daemon: PageDaemon) -> None:
    session = daemon.session(writing("keys.txt"), "Done.", name="Keys", **GUARDED)
    daemon.begin(session, "write")
    visit(page, "/app/")
    expect(page.get_by_role("navigation").first).to_be_visible()

    page.keyboard.press("g")
    page.keyboard.press("i")
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="keys.txt")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("view-inbox button:focus")).to_have_count(1)
    page.keyboard.press("Enter")

    expect(page.get_by_text("Nothing is waiting for you")).to_be_visible()
    assert (daemon.directory / "keys.txt").exists()
