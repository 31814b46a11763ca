"""Logging in and out, in the browser."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from .accessibility import faults
from .chromium import Complaints
from .page_daemon import PageDaemon


def test_a_link_logs_in_and_shows_the_page(stranger: Page, daemon: PageDaemon) -> None:
    stranger.goto(daemon.login_link())

    expect(stranger).to_have_url(f"{daemon.url}/app/")
    (cookie,) = stranger.context.cookies()

    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Lax", False)
    assert stranger.evaluate("document.cookie") == ""


def test_a_token_logs_in_all_tabs(stranger: Page, daemon: PageDaemon) -> None:
    other = stranger.context.new_page()
    for tab in (stranger, other):
        tab.goto("/app/")
        expect(tab.get_by_label("Token")).to_be_visible()

    stranger.get_by_label("Token").fill(daemon.token)
    stranger.get_by_role("button", name="Log in").click()

    for tab in (stranger, other):
        expect(tab.get_by_role("navigation").first).to_be_visible()


def test_a_wrong_token_and_a_used_link_log_nobody_in(
    stranger: Page, daemon: PageDaemon, complaints: Complaints
) -> None:
    complaints.expect("status of 4(01|10)")
    stranger.goto("/app/")
    expect(stranger.get_by_label("Token")).to_be_visible()
    assert faults(stranger) == []

    stranger.get_by_label("Token").fill("amp_wrong")
    stranger.get_by_role("button", name="Log in").click()

    expect(stranger.get_by_role("alert")).to_contain_text("does not know this token")
    assert stranger.context.cookies() == []
    link = daemon.login_link()
    stranger.request.get(link)
    stranger.context.clear_cookies()
    stranger.goto(link)
    expect(stranger.get_by_role("heading")).to_have_text("This login link no longer works")
    expect(stranger.get_by_text("amplifier daemon open")).to_be_visible()
    assert stranger.context.cookies() == []
