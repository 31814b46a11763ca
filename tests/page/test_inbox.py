"""The inbox: questions of all sessions, answered in one place."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from amplifier_system.visible import visible_exactly

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


HIDING = [
    0x0B,
    0x1B,
    0x7F,
    0x85,
    0x9B,
    0xA0,
    0xAD,
    0x34F,
    0x61C,
    0x115F,
    0x180E,
    0x200B,
    0x200D,
    0x200E,
    0x2028,
    0x2029,
]
HIDING += [0x202E, 0x2060, 0x2066, 0x2800, 0x3000, 0x3164, 0xE000, 0xFE0F, 0xFEFF, 0xFFA0, 0xE0001, 0xE0041, 0xE0100]


def test_a_question_shows_every_character_of_a_long_command_and_every_field(page: Page, daemon: PageDaemon) -> None:
    hiding = "".join(f"{chr(code)}é" for code in HIDING)
    command = f"echo {'x' * 3000} '{hiding}'; touch last"
    given = {"command": command, "run_in_background": True, "timeout": 77}
    call = {"tool_calls": [{"id": "call_1", "name": "bash", "arguments": given}]}
    session = daemon.session(call, "Done.", name="Long", **{**GUARDED, "tools": ["tool-bash"]})
    daemon.begin(session, "go")
    visit(page, "/app/inbox")

    question = page.get_by_label("What is asked about")
    expect(question).to_be_visible()

    shown = question.text_content() or ""
    assert visible_exactly(command) in shown
    assert "run_in_background: true\ntimeout: 77\nworking directory: " in shown
    assert shown.endswith("a yes covers: this call\nalways covers: exactly this call")
    expect(page.get_by_text("characters, all of them below")).to_be_visible()
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_text("Nothing is waiting for you")).to_be_visible()


def test_always_here_is_written_to_the_home_for_this_project(page: Page, daemon: PageDaemon) -> None:
    session = daemon.session(writing("a.txt"), writing("b.txt"), "Done.", name="Here", **GUARDED)
    daemon.begin(session, "write")
    visit(page, "/app/inbox")

    item = page.get_by_role("listitem").filter(has_text="always covers: write files in ./")
    item.get_by_role("button", name="Always here").click()

    expect(page.get_by_text("Nothing is waiting for you")).to_be_visible()
    visit(page, f"/app/sessions/{session}")
    expect(page.get_by_text("Done.")).to_be_visible()
    assert (daemon.directory / "b.txt").exists()
    file = daemon.directory.parent / "home/config/approvals.yaml"
    assert "covers: write files in ./" in file.read_text()
    file.unlink()  # other tests ask again
