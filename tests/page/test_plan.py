"""Plan and lock: the modules as a picture, their versions, who set their values, and what a newer build changes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from .page_daemon import PageDaemon
from .sample_sessions import session_of
from .visits import visit


@pytest.fixture(scope="module")
def offline(daemon: PageDaemon) -> str:
    """A session that has run, so that its modules are loaded."""
    session_id = session_of(daemon, "foundation/offline")
    daemon.run(session_id, "hello")
    return session_id


def test_the_modules_are_a_picture_with_their_versions(page: Page, offline: str) -> None:
    visit(page, f"/app/sessions/{offline}/plan")

    for section, module in (
        *(("Loop", "loop-streaming"), ("Context", "context-simple"), ("Providers", "provider-mock")),
        *(("Tools", "tool-filesystem"), ("Hooks", "hooks-redaction"), ("Told", "Instruction")),
    ):
        expect(page.get_by_role("region", name=section, exact=True).get_by_role("button", name=module)).to_be_visible()
    expect(page.locator("[data-module=tool-search]")).to_contain_text("v0.1.0")
    expect(page.locator("[data-module=tool-search]")).to_contain_text("loaded")
    expect(page.get_by_text("This session runs the newest build.")).to_be_visible()


def test_a_module_shows_its_hash_and_the_line_that_set_each_value(page: Page, offline: str) -> None:
    visit(page, f"/app/sessions/{offline}/plan")
    page.locator("[data-module=tool-filesystem]").press("Enter")

    details = page.get_by_role("region", name="Details")
    expect(details.get_by_role("heading", name="tool-filesystem")).to_be_focused()
    expect(details).to_contain_text("sha256:")
    value = details.locator(".explained", has_text="read_before_write")
    expect(value).to_contain_text("foundation/foundation, profile.md:")
    value.locator("summary").press("Enter")
    expect(value.get_by_label("Value")).to_have_text("enforce")
    page.keyboard.press("Escape")

    expect(page.locator("[data-module=tool-filesystem]")).to_be_focused()


def test_hooks_are_shown_by_event(page: Page, offline: str) -> None:
    visit(page, f"/app/sessions/{offline}/plan")
    row = page.get_by_role("row", name="hooks-redaction")
    expect(row.get_by_role("cell").nth(1)).to_contain_text("event")

    row.get_by_role("button").click()

    expect(page.get_by_role("region", name="Details")).to_contain_text("prompt:submit")


def test_a_newer_build_is_compared_and_taken(page: Page, daemon: PageDaemon) -> None:
    profile = {"name": "moving", "description": "Moves.", "extends": "foundation/offline", "instruction": "One."}
    daemon.api.post("/profiles", json=profile).raise_for_status()
    session_id = session_of(daemon, "local/moving")
    tools = [{"module": "tool-bash"}, {"module": "tool-filesystem", "config": {"read_before_write": "warn"}}]
    changed = {"instruction": "Two.", "tools": tools}
    daemon.api.patch("/profiles/local/moving", json=changed).raise_for_status()
    visit(page, f"/app/sessions/{session_id}/plan")

    expect(page.get_by_text("profile-changed")).to_be_visible()
    page.get_by_role("button", name="Compile the profile").click()
    change = page.get_by_role("list", name="What would change")
    expect(change).to_contain_text("tool-bash")
    expect(change.locator("li.plan-change", has_text="tool-filesystem")).to_contain_text("enforce → warn")
    expect(page.get_by_text("its instruction differs")).to_be_visible()
    page.get_by_role("button", name="Move this session to it").click()

    expect(page.get_by_text("This session runs the newest build.")).to_be_visible()
    expect(page.get_by_role("region", name="Tools", exact=True).get_by_role("button", name="tool-bash")).to_be_visible()


def test_a_session_with_a_plan_of_its_own_says_so(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("Hello.")
    visit(page, f"/app/sessions/{session_id}/plan")

    expect(page.get_by_text("The session runs a plan of its own")).to_be_visible()
    page.get_by_role("button", name="Load the session and show").click()

    expect(page.get_by_role("row", name="session-journal")).to_be_visible()
    expect(page.locator("[data-module=context-simple]")).to_contain_text("loaded")


def test_whoever_may_only_read_is_told_what_is_not_shown(stranger: Page, daemon: PageDaemon) -> None:
    owner = daemon.api.get("/auth/me").json()["owner"]
    session_id = daemon.session("Loaded.", name="Read only")
    daemon.run(session_id, "go")
    stranger.goto(daemon.login_link(daemon.token_of("read", "reader-of-plan", owner=owner)))

    visit(stranger, f"/app/sessions/{session_id}/plan")

    expect(stranger.get_by_text("it needs the scope run")).to_be_visible()
    expect(stranger.get_by_text("provider-mock").first).to_be_visible()
