"""Logging in and out, in the browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from .chromium import Complaints
from .page_daemon import PageDaemon


def test_a_link_logs_in_and_shows_the_page(page: Page, daemon: PageDaemon) -> None:
    expect(page).to_have_url(f"{daemon.url}/app/")
    (cookie,) = page.context.cookies()

    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Lax", False)
    assert page.evaluate("document.cookie") == ""


def test_a_token_logs_in(new_tab: Callable[[], Page], daemon: PageDaemon) -> None:
    page = new_tab()
    page.goto("/app/")

    page.get_by_label("Token").fill(daemon.token)
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("navigation").first).to_be_visible()


def test_a_wrong_token_is_told_and_does_not_log_in(new_tab: Callable[[], Page], complaints: Complaints) -> None:
    complaints.expect("status of 401")
    page = new_tab()
    page.goto("/app/")

    page.get_by_label("Token").fill("amp_wrong")
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("alert")).to_contain_text("does not know this token")
    assert page.context.cookies() == []


def test_a_link_that_was_used_says_how_to_get_another(page: Page, daemon: PageDaemon, complaints: Complaints) -> None:
    complaints.expect("status of 410")
    link = daemon.login_link()
    page.goto(link)
    page.context.clear_cookies()

    page.goto(link)

    expect(page.get_by_role("heading")).to_have_text("This login link does not work any more")
    expect(page.get_by_text("amplifier daemon open")).to_be_visible()
