"""The daemon in the browser: state, workers, operations, log, tokens."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from .chromium import Complaints
from .page_daemon import PageDaemon
from .visits import visit


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


def test_whoever_may_only_run_is_told_what_is_not_shown(
    stranger: Page, daemon: PageDaemon, complaints: Complaints
) -> None:
    complaints.expect("status of 403")
    stranger.goto(daemon.login_link(daemon.token_of("run", "runner-of-view")))
    expect(stranger.get_by_role("navigation").first).to_be_visible()

    visit(stranger, "/app/daemon")

    expect(stranger.get_by_role("heading", name="Tokens")).to_be_visible()
    expect(stranger.get_by_text("it needs the scope admin").first).to_be_visible()
