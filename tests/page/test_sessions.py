"""The list of sessions: live, searched, filtered, and what can be done with a session there."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from .chromium import Complaints
from .page_daemon import PageDaemon
from .sample_sessions import asking_session, delegating_session
from .visits import visit


@pytest.fixture
def page(page: Page) -> Page:
    """A tab that shows the list."""
    visit(page, "/app/")
    expect(page.get_by_role("navigation").first).to_be_visible()
    return page


def row(page: Page, name: str) -> Locator:
    """Return the line of a session in the list."""
    return page.get_by_role("list", name="Sessions", exact=True).get_by_role("listitem").filter(has_text=name)


def choose(page: Page, name: str, entry: str) -> None:
    """Choose something in the menu of a session."""
    row(page, name).get_by_role("button", name="Actions for").click()
    page.get_by_role("menuitem", name=entry).click()


def test_a_session_without_a_name_is_called_by_its_first_prompt(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("Quinces.", name=None)

    daemon.run(session_id, "which fruit is golden in autumn")

    expect(row(page, "which fruit is golden in autumn")).to_contain_text("1 turn")


def test_a_session_appears_works_and_counts_without_a_reload(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session("It is four.", name="Sums of today")
    expect(row(page, "Sums of today")).to_contain_text("0 turns")

    daemon.run(session_id, "how much is two and two")

    expect(row(page, "Sums of today")).to_contain_text("1 turn")
    expect(row(page, "Sums of today")).to_contain_text("unknown")  # the model has no price


def test_a_session_that_waits_for_an_answer_says_so_and_is_found_by_the_filter(page: Page, daemon: PageDaemon) -> None:
    other = daemon.session("Done.", name="Nothing to ask here")
    daemon.run(other, "go")
    asking = asking_session(daemon, "waits.txt", "Has a question")

    daemon.begin(asking, "write it")

    expect(row(page, "Has a question").get_by_role("img", name="Waits for approval")).to_be_visible()
    page.get_by_role("group", name="Show").get_by_role("button", name=re.compile("Waiting")).click()
    expect(row(page, "Has a question")).to_be_visible()
    expect(row(page, "Nothing to ask here")).to_have_count(0)
    page.get_by_role("group", name="Show").get_by_role("button", name="All").click()
    daemon.api.post(f"/sessions/{asking}/cancel", json={"immediate": True}).raise_for_status()


def test_words_of_messages_are_found(page: Page, daemon: PageDaemon) -> None:
    daemon.run(daemon.session("The heron stands still.", name="About birds"), "what does it do")
    daemon.session(name="About fish")

    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("heron")

    expect(row(page, "About birds")).to_contain_text("heron")
    expect(row(page, "About fish")).to_have_count(0)


def test_a_session_is_started_with_profile_directory_and_limits(page: Page, daemon: PageDaemon) -> None:
    (daemon.directory / "milk.md").write_text("buy milk\n")
    page.keyboard.press("n")
    page.get_by_label("First prompt").fill("read milk.md")
    expect(page.get_by_label("Default")).to_be_checked()
    expect(page.get_by_text("Now foundation/offline")).to_be_visible()
    expect(page.get_by_role("link", name="store the key of a provider")).to_be_visible()
    page.get_by_role("radio", name="foundation/offline Real tools").check()
    page.get_by_label("Working directory").fill(str(daemon.directory))
    page.get_by_text("Limits", exact=True).press("Enter")  # which leaves the field, and so closes its completions
    page.get_by_label("Turns").fill("3")

    page.get_by_role("button", name="Start session").click()

    expect(page.get_by_role("heading", name="read milk.md")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("buy milk")
    made = daemon.api.get(f"/sessions/{page.url.rpartition('/')[2]}").json()
    assert (made["working_dir"], made["profile_name"]) == (str(daemon.directory), "foundation/offline")
    assert made["limits"]["turns"] == 3


def test_a_directory_is_completed(page: Page, daemon: PageDaemon) -> None:
    (daemon.directory / "garden" / "roses").mkdir(parents=True)
    visit(page, "/app/new")
    field = page.get_by_role("combobox", name="Working directory")

    field.fill("gar")
    expect(page.get_by_role("option", name="garden", exact=True)).to_be_visible()
    field.press("ArrowDown")
    field.press("Enter")
    expect(page.get_by_role("option", name="garden/roses")).to_be_visible()

    expect(field).to_have_value(f"{daemon.directory}/garden/")


def test_a_session_is_renamed(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session(name="Old name")

    choose(page, "Old name", "Rename…")
    page.get_by_role("dialog").get_by_label("Name").fill("New <b>name</b>")
    page.keyboard.press("Enter")

    expect(row(page, "New <b>name</b>")).to_be_visible()
    assert daemon.api.get(f"/sessions/{session_id}").json()["name"] == "New <b>name</b>"


def test_a_session_goes_on_with_another_profile(page: Page, daemon: PageDaemon) -> None:
    daemon.api.post("/profiles/foundation/offline/copy", json={"new_name": "taken-over"}).raise_for_status()
    body = {"profile_name": "foundation/offline", "name": "Changes its profile", "working_dir": str(daemon.directory)}
    session_id = daemon.api.post("/sessions", json=body).raise_for_status().json()["session_id"]

    choose(page, "Changes its profile", "Change profile…")
    page.get_by_role("dialog").get_by_label("Profile").select_option("local/taken-over")
    page.get_by_role("button", name="Change", exact=True).click()

    expect(row(page, "Changes its profile")).to_contain_text("local/taken-over")
    assert daemon.api.get(f"/sessions/{session_id}").json()["profile_name"] == "local/taken-over"


def test_a_fork_goes_on_from_the_last_turn(page: Page, daemon: PageDaemon) -> None:
    daemon.run(daemon.session("The first answer.", name="To be forked"), "begin")

    choose(page, "To be forked", "Fork from the last turn")

    expect(page.get_by_role("heading", name="To be forked (fork)")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("The first answer.")
    expect(page.get_by_role("link", name="fork of turn 1")).to_be_visible()


def test_a_session_that_cannot_be_forked_says_why(page: Page, daemon: PageDaemon, complaints: Complaints) -> None:
    complaints.expect("status of 422")
    daemon.session(name="Nothing to fork")

    choose(page, "Nothing to fork", "Fork from the last turn")

    expect(page.locator("#toasts")).to_contain_text("Not forked · turn 0 is out of range")


def test_a_session_is_exported_and_imported(page: Page, daemon: PageDaemon, complaints: Complaints) -> None:
    complaints.expect("status of 4")
    session_id = daemon.session("Packed up.", name="To be exported")
    daemon.run(session_id, "pack")
    expect(row(page, "To be exported")).to_be_visible()

    with page.expect_download() as download:
        choose(page, "To be exported", "Export")
    assert download.value.suggested_filename == f"{session_id}.zip"
    file = {"name": f"{session_id}.zip", "mimeType": "application/zip", "buffer": download.value.path().read_bytes()}
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import a session").press("Enter")
    chooser.value.set_files(file)
    expect(page.get_by_role("log")).to_contain_text("Packed up.")
    imported = page.url.rpartition("/")[2]
    assert imported != session_id
    assert daemon.api.get(f"/sessions/{imported}").json()["imported_from"] == session_id

    visit(page, "/app/")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import a session").click()
    chooser.value.set_files({**file, "buffer": b"not an exported session"})
    expect(page.locator('.toast[data-kind="error"]')).to_contain_text("Not imported")


@pytest.fixture
def foreign() -> Iterator[str]:
    """A session that another application of the ecosystem keeps in the person's home."""
    directory = Path.home() / ".amplifier/projects/-work-shop/sessions/kept-elsewhere"
    directory.mkdir(parents=True)
    told = {"session_id": directory.name, "created": "2026-01-02T03:04:05+00:00", "name": "Of another application"}
    (directory / "metadata.json").write_text(json.dumps(told))
    (directory / "transcript.jsonl").write_text(json.dumps({"role": "user", "content": "Hello there"}) + "\n")
    yield directory.name
    shutil.rmtree(Path.home() / ".amplifier/projects")


def test_a_session_of_another_application_is_shown_and_exported(page: Page, foreign: str) -> None:
    page.reload()
    expect(row(page, "Of another application")).to_be_visible()

    with page.expect_download() as download:
        choose(page, "Of another application", "Export")

    with zipfile.ZipFile(download.value.path()) as exported:
        (transcript,) = [name for name in exported.namelist() if name.endswith("transcript.jsonl")]
        assert b"Hello there" in exported.read(transcript)


def test_a_deleted_session_comes_back_by_undo_and_from_the_trash(page: Page, daemon: PageDaemon) -> None:
    session_id = daemon.session(name="Deleted by mistake")

    choose(page, "Deleted by mistake", "Delete")
    expect(row(page, "Deleted by mistake")).to_have_count(0)
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(row(page, "Deleted by mistake")).to_be_visible()

    choose(page, "Deleted by mistake", "Delete")
    expect(row(page, "Deleted by mistake")).to_have_count(0)
    page.get_by_role("button", name="Deleted sessions").click()
    deleted = page.get_by_role("dialog").get_by_role("listitem").filter(has_text="Deleted by mistake")
    deleted.get_by_role("button", name="Restore").click()
    expect(deleted).to_have_count(0)
    assert daemon.api.get(f"/sessions/{session_id}").status_code == 200


def test_sessions_of_agents_are_below_the_one_they_work_for(page: Page, daemon: PageDaemon) -> None:
    session_id = delegating_session(daemon, "Delegates its work")
    daemon.run(session_id, "ask the reviewer")
    parent = row(page, "Delegates its work")
    expect(parent).to_contain_text("1 turn")

    parent.get_by_role("button", name="1 sub-session of Delegates its work").click()

    expect(row(page, "reviewer")).to_be_visible()
    parent.get_by_role("link").focus()
    page.keyboard.press("ArrowLeft")
    expect(row(page, "reviewer")).to_have_count(0)


def test_the_list_works_by_keyboard_alone(page: Page, daemon: PageDaemon) -> None:
    daemon.session(name="Reached by keys")
    expect(row(page, "Reached by keys")).to_be_visible()

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("New session")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(row(page, "Reached by keys").get_by_role("link")).to_be_focused()
    page.keyboard.press(".")
    expect(page.get_by_role("menu")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page.get_by_role("textbox", name="Message to the agent")).to_be_visible()


def test_a_dialog_goes_with_the_view_that_it_belongs_to(page: Page) -> None:
    visit(page, "/app/new")
    visit(page, "/app/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()

    page.go_back()

    expect(page.get_by_role("heading", name="New session")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_names_from_outside_stay_text(page: Page, daemon: PageDaemon) -> None:
    name = '<img src=x onerror="document.title=1"><script>document.title=2</script> \u202egnp.exe'
    daemon.session(name=name)

    expect(row(page, '<img src=x onerror="document.title=1">')).to_be_visible()
    assert page.title().endswith("Sessions · Amplifier")
