"""The daemon in the browser: state, workers, operations, log, tokens."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from .chromium import Complaints
from .page_daemon import PageDaemon
from .visits import tab_to, visit


def test_state_workers_operations_and_log_are_seen(page: Page, daemon: PageDaemon) -> None:
    session = daemon.session("Hello.", name="Loaded in a worker")
    daemon.run(session, "hi")
    visit(page, "/app/")
    page.get_by_role("link", name="Daemon").click()

    expect(page.get_by_role("heading", name="State")).to_be_visible()
    expect(page.get_by_text("Event loop lag")).to_be_visible()
    expect(page.get_by_role("region", name="Workers").get_by_role("link", name="Loaded in a worker")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("ready after")
    page.get_by_label("Filter the log").fill("no line has this")
    expect(page.get_by_role("log")).to_be_empty()

    daemon.api.post("/profiles/foundation/offline/compile").raise_for_status()
    expect(page.get_by_role("listitem").filter(has_text="profile compile foundation/offline").first).to_contain_text(
        "Done"
    )


def test_a_token_is_made_shown_once_and_revoked(page: Page, daemon: PageDaemon) -> None:
    visit(page, "/app/daemon")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_label("Scope").select_option("read")
    page.get_by_role("button", name="Create").click()

    secret = page.locator(".secret code").inner_text()
    reader = {"Authorization": f"Bearer {secret}"}
    assert daemon.api.get("/auth/me", headers=reader).json()["scope"] == "read"
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("row", name="laptop")).to_be_visible()
    assert secret not in page.content()

    page.get_by_role("button", name="Revoke laptop").click()
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_role("row", name="laptop")).to_have_count(0)
    assert daemon.api.get("/auth/me", headers=reader).status_code == 401


def test_a_key_of_a_provider_is_stored_and_removed(page: Page, daemon: PageDaemon) -> None:
    visit(page, "/app/daemon#daemon-keys")
    keys = page.get_by_role("region", name="Provider keys")
    expect(keys.get_by_role("heading")).to_be_in_viewport()
    keys.get_by_role("button", name="Store a key for provider-openai").click()
    page.get_by_label("Key", exact=True).fill("sk-not-a-real-key-1234")
    page.get_by_role("button", name="Store", exact=True).last.click()

    stored = keys.get_by_role("row", name="provider-openai")
    expect(stored).to_contain_text("1234")
    assert "sk-not-a-real-key-1234" not in page.content()
    (known,) = daemon.api.get("/settings").json()["api_keys"]
    assert (known["provider_id"], known["is_set"]) == ("provider-openai", True)
    keys.get_by_role("button", name="Remove the key of provider-openai").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(stored).to_contain_text("none stored")
    assert daemon.api.get("/settings").json()["api_keys"] == []


def test_the_daemon_is_looked_after_with_keys_alone(page: Page, daemon: PageDaemon) -> None:
    press = page.keyboard.press
    visit(page, "/app/")
    expect(page.get_by_role("navigation").first).to_be_visible()
    press("g")
    press("d")
    expect(page.get_by_role("heading", name="State")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("ready after")
    press("/")
    expect(page.get_by_label("Filter the log")).to_be_focused()
    page.keyboard.type("ready after")
    expect(page.get_by_text(re.compile(r"\d+ of the last \d+ lines"))).to_be_visible()
    tab_to(page, page.get_by_role("log"))

    tab_to(page, page.get_by_role("button", name="New token"))
    press("Enter")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("by-keys")
    press("Enter")
    expect(page.get_by_role("heading", name="Token by-keys")).to_be_visible()
    press("Escape")
    tab_to(page, page.get_by_role("button", name="Revoke by-keys"))
    press("Enter")
    expect(page.get_by_role("heading", name="Revoke by-keys?")).to_be_visible()
    tab_to(page, page.get_by_role("button", name="Revoke", exact=True))
    press("Enter")
    expect(page.get_by_role("row", name="by-keys")).to_have_count(0)
    assert "by-keys" not in [one["name"] for one in daemon.api.get("/tokens").json()["tokens"]]


def test_whoever_may_only_run_is_told_what_is_not_shown(
    stranger: Page, daemon: PageDaemon, complaints: Complaints
) -> None:
    complaints.expect("status of 403")
    stranger.goto(daemon.login_link(daemon.token_of("run", "runner-of-view")))
    expect(stranger.get_by_role("navigation").first).to_be_visible()

    visit(stranger, "/app/daemon")

    expect(stranger.get_by_role("heading", name="Tokens")).to_be_visible()
    expect(stranger.get_by_text("it needs the scope admin").first).to_be_visible()
