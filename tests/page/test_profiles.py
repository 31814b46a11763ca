"""Profiles in the browser: found, copied, edited with validation as you type, compiled, deleted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from git_repository import Repository, use_plain_git
from playwright.sync_api import Page, expect

from .chromium import Complaints
from .page_daemon import PageDaemon
from .visits import tab_to, visit

SHARED = """---
profile: {name: NAME, version: 1.0.0, description: Shared, extends: foundation/offline, schema_version: 2}
---
"""
REMEMBER_PROGRESS = """
() => {
  window.progress = [];
  const see = () => document.querySelectorAll(".progress-line").forEach((line) => progress.push(line.textContent));
  new MutationObserver(see).observe(document.querySelector("main"), { childList: true, subtree: true });
}
"""
"""Keeps what the page says about long work, however short that was."""


def test_a_profile_is_copied_edited_compiled_and_deleted(page: Page, daemon: PageDaemon) -> None:
    visit(page, "/app/")
    page.get_by_role("link", name="Profiles").click()
    page.get_by_label("Filter profiles").fill("offline")
    page.get_by_role("link", name="offline").click()
    expect(page.get_by_role("heading", name="foundation/offline")).to_be_visible()
    expect(page.get_by_label("Text of the profile")).not_to_be_editable()
    expect(page.get_by_role("link", name="foundation/foundation")).to_be_visible()

    page.get_by_role("button", name="Copy to edit").click()
    page.get_by_label("Name of the copy").fill("edited")
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("heading", name="local/edited")).to_be_visible()

    text = page.get_by_label("Text of the profile")
    expect(text).not_to_be_empty()
    sound = text.input_value()
    text.fill(sound.replace("version:", "verzion:"))
    expect(page.get_by_text("Not valid")).to_be_visible()
    expect(page.get_by_role("list", name="Issues")).to_contain_text("add profile.version")

    text.fill(sound + "\nAlways answer in two sentences.\n")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    text.press("Control+s")
    expect(page.locator("#toasts")).to_contain_text("Saved local/edited")
    stored = daemon.api.get("/profiles/local/edited", params={"raw": True}).text
    assert stored.endswith("Always answer in two sentences.\n")

    page.get_by_role("button", name="Compile", exact=True).click()
    expect(page.get_by_text("Fresh")).to_be_visible()
    expect(page.get_by_role("region", name="Lock")).to_contain_text("tool-filesystem")

    broken = sound.replace("---\n", "---\ntools:\n- {module: tool-nowhere, source: ./nowhere}\n", 1)
    text.fill(broken)
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    text.press("Control+s")
    expect(page.get_by_role("region", name="Build")).to_contain_text("Stale")
    page.get_by_role("button", name="Compile", exact=True).click()
    expect(page.get_by_role("region", name="Build")).to_contain_text("The last compile failed")
    expect(page.get_by_role("region", name="Build")).to_contain_text("tool-nowhere")

    page.get_by_role("button", name="Actions for local/edited").click()
    page.get_by_role("menuitem", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page).to_have_url(f"{daemon.url}/app/profiles")
    assert daemon.api.get("/profiles/local/edited").status_code == 404


def test_a_change_that_somebody_else_made_is_not_overwritten_unasked(
    page: Page, daemon: PageDaemon, complaints: Complaints
) -> None:
    complaints.expect("status of 409")
    daemon.api.post("/profiles/foundation/offline/copy", json={"new_name": "shared"}).raise_for_status()
    visit(page, "/app/profiles/local/shared")
    text = page.get_by_label("Text of the profile")
    expect(text).not_to_be_empty()
    daemon.api.patch("/profiles/local/shared", json={"description": "Theirs"}).raise_for_status()

    text.fill(text.input_value() + "\nMine.\n")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Changed elsewhere")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    assert daemon.api.get("/profiles/local/shared").json()["description"] == "Theirs"

    page.reload()
    expect(text).to_have_value(re.compile("Mine."))


def test_a_profile_is_begun_from_another_one(page: Page, daemon: PageDaemon) -> None:
    visit(page, "/app/profiles")
    page.get_by_role("button", name="New profile").click()
    page.get_by_label("Name", exact=True).fill("begun")
    page.get_by_label("Extends").select_option("foundation/offline")
    page.get_by_role("button", name="Create").click()

    expect(page.get_by_role("heading", name="local/begun")).to_be_visible()
    assert daemon.api.get("/profiles/local/begun").json()["extends"] == "foundation/offline"


def test_compiling_from_the_list_tells_how_it_went(page: Page) -> None:
    visit(page, "/app/profiles")

    page.get_by_role("button", name="Compile foundation/offline").click()

    expect(page.locator("#toasts")).to_contain_text(re.compile("nothing has changed|Compiled foundation/offline"))


def test_a_collection_that_cannot_be_had_says_so(page: Page) -> None:
    visit(page, "/app/profiles")
    page.get_by_role("button", name="Add collection").click()
    page.get_by_label("Name", exact=True).fill("nowhere")
    page.get_by_label("Source").fill("/nowhere/at/all")
    page.get_by_role("button", name="Add", exact=True).click()

    expect(page.locator('.toast[data-kind="error"]')).to_be_visible()


def test_a_collection_is_added_and_synced_with_progress(page: Page, daemon: PageDaemon) -> None:
    shelf = daemon.directory / "shelf/profiles"
    shelf.mkdir(parents=True)
    (shelf / "first.md").write_text(SHARED.replace("NAME", "first"))
    visit(page, "/app/profiles")
    page.get_by_role("button", name="Add collection").click()
    page.get_by_label("Name", exact=True).fill("shelf")
    page.get_by_label("Source").fill(str(shelf.parent))
    page.get_by_role("button", name="Add", exact=True).click()
    section = page.get_by_role("region", name="shelf")
    expect(section.get_by_role("link", name="first")).to_be_visible()
    expect(page.locator("#toasts")).to_contain_text("Added shelf")

    (shelf / "second.md").write_text(SHARED.replace("NAME", "second"))
    page.evaluate(REMEMBER_PROGRESS)
    section.get_by_role("button", name="Actions for shelf").click()
    page.get_by_role("menuitem", name="Sync").click()

    expect(page.locator("#toasts")).to_contain_text("Synced shelf")
    expect(section.get_by_role("link", name="second")).to_be_visible()
    expect(section.locator(".progress-line")).to_have_count(0)
    assert page.evaluate("progress.some((line) => line.includes('shelf'))"), page.evaluate("progress")

    (shelf.parent / "profiles").rename(shelf.parent / "gone")
    shelf.parent.rename(daemon.directory / "moved")
    page.get_by_role("button", name="Sync all").click()
    expect(page.locator('.toast[data-kind="error"]')).to_contain_text("Not synced: shelf")
    section.get_by_role("button", name="Actions for shelf").click()
    page.get_by_role("menuitem", name="Remove…").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(section).to_have_count(0)


def test_profiles_are_found_made_edited_and_compiled_with_keys_alone(page: Page, daemon: PageDaemon) -> None:
    press = page.keyboard.press
    visit(page, "/app/")
    expect(page.get_by_role("navigation").first).to_be_visible()
    press("g")
    press("p")
    expect(page.get_by_role("link", name="offline").first).to_be_visible()
    press("/")
    expect(page.get_by_label("Filter profiles")).to_be_focused()
    page.keyboard.type("offline")
    press("Tab")
    press("j")
    expect(page.get_by_role("link", name="offline").first).to_be_focused()
    press("Enter")
    expect(page.get_by_role("heading", name="foundation/offline")).to_be_visible()

    tab_to(page, page.get_by_role("button", name="Copy to edit"))
    press("Enter")
    expect(page.get_by_label("Name of the copy")).to_be_focused()
    press("ControlOrMeta+a")
    page.keyboard.type("by-keys")
    press("Enter")
    expect(page.get_by_role("heading", name="local/by-keys")).to_be_visible()

    tab_to(page, page.get_by_label("Text of the profile"))
    expect(page.get_by_label("Text of the profile")).not_to_be_empty()
    press("ControlOrMeta+End")
    page.keyboard.type("Be brief.")
    press("ControlOrMeta+s")
    expect(page.locator("#toasts")).to_contain_text("Saved local/by-keys")
    tab_to(page, page.get_by_role("button", name="Compile", exact=True))
    press("Enter")
    expect(page.get_by_text("Fresh")).to_be_visible()
    assert daemon.api.get("/profiles/local/by-keys", params={"raw": True}).text.endswith("Be brief.")
    daemon.api.delete("/profiles/local/by-keys").raise_for_status()


def test_what_a_fetched_profile_would_get_is_asked_about_before_a_session_has_it(
    page: Page, daemon: PageDaemon, complaints: Complaints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints.expect("status of 403")
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "theirs")
    provider = "providers: [{module: provider-mock, config: {script: [Heard.], name: '\u202e${HOME}'}}]"
    head = "session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}"
    named = "profile: {name: them, version: 1.0.0, schema_version: 2}"
    repository.commit({"profiles/them.md": f"---\n{named}\n{head}\n{provider}\n---\n"})
    source = f"{repository.source}@main"
    daemon.api.post("/collections", json={"identifier": "theirs", "source": source}).raise_for_status()
    session_id = daemon.session("Before.")
    visit(page, f"/app/sessions/{session_id}")
    question = page.get_by_role("dialog", name="Give away keys or variables?")

    def change_profile() -> None:
        page.get_by_role("button", name="Session actions").first.click()
        page.get_by_role("menuitem", name="Change profile…").click()
        page.get_by_role("dialog").get_by_label("Profile").select_option("theirs/them")
        page.get_by_role("button", name="Change", exact=True).click()
        expect(question).to_contain_text("provider-mock would get the variable HOME: name: \\u202e${HOME}")

    change_profile()
    question.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert").filter(has_text="amplifier config agree")).to_be_visible()
    page.get_by_role("button", name="Change", exact=True).click()
    question.get_by_role("button", name="Agree").click()
    expect(page.locator("#toasts")).to_contain_text("The session goes on with theirs/them")

    agreement = {"module": "provider-mock", "gets": "HOME", "hosts": []}
    daemon.api.patch("/settings/agreements", json={"withdraw": [agreement]}).raise_for_status()
    field = page.get_by_role("textbox", name="Message to the agent")
    field.fill("Hello")
    field.press("Enter")
    question.get_by_role("button", name="Agree").click()
    expect(page.get_by_text("Heard.")).to_be_visible()
    page.goto("about:blank")
    daemon.api.patch("/settings/agreements", json={"withdraw": [agreement]}).raise_for_status()
    daemon.api.delete(f"/sessions/{session_id}").raise_for_status()
    daemon.api.delete("/collections/theirs", params={"force": True}).raise_for_status()
