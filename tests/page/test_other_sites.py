"""What another site, or another port of this machine, can do with a browser that is logged in: nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from .chromium import Complaints
from .other_site import ATTEMPTS, SEND_A_FORM, other_site
from .page_daemon import PageDaemon

NAMES = ["localhost", "127.0.0.1"]
"""Another site, and the same one on another port: browsers send the cookie to the latter."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with other_site() as port:
        yield port


@pytest.fixture(autouse=True)
def provoked(complaints: Complaints) -> None:
    """Every attempt here is one that the browser complains of."""
    complaints.expect("")


def tokens(daemon: PageDaemon) -> list[str]:
    return [token["name"] for token in daemon.api.get("/tokens").json()["tokens"]]


def who(page: Page) -> str:
    """Return whom the cookies of the browser log in; nobody makes it fail."""
    name: str = page.request.get("/api/v1/auth/me", fail_on_status_code=True).json()["name"]
    return name


@pytest.mark.parametrize("name", NAMES)
def test_it_can_neither_read_nor_change_anything(page: Page, daemon: PageDaemon, port: int, name: str) -> None:
    before = tokens(daemon)
    page.goto(f"http://{name}:{port}/")

    found = page.evaluate(ATTEMPTS, daemon.url)

    assert {attempt: outcome for attempt, outcome in found.items() if outcome not in ("refused", "empty", "sent")} == {}
    framed = [frame for frame in page.frames if frame.name == "framed"]
    assert [frame.url for frame in framed] == ["chrome-error://chromewebdata/"]
    assert tokens(daemon) == before
    assert who(page) == "default"


@pytest.mark.parametrize("name", NAMES)
def test_its_forms_change_nothing(page: Page, daemon: PageDaemon, port: int, name: str) -> None:
    before = tokens(daemon)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        page.goto(f"http://{name}:{port}/")

        with page.expect_navigation():
            page.evaluate(SEND_A_FORM, [daemon.url, kind])

        assert any(word in page.content() for word in ("rejected", "unauthorized", "unsupported-media-type")), kind
    assert tokens(daemon) == before
    assert who(page) == "default"


@pytest.mark.parametrize("name", NAMES)
def test_its_links_show_nothing_of_the_api(page: Page, daemon: PageDaemon, port: int, name: str) -> None:
    page.goto(f"http://{name}:{port}/")

    with page.expect_navigation():
        page.evaluate("(address) => { location.href = address }", f"{daemon.url}/api/v1/auth/me")

    assert "origin-rejected" in page.content()


@pytest.mark.parametrize("name", NAMES)
def test_it_cannot_log_the_browser_in_as_somebody_else(page: Page, daemon: PageDaemon, port: int, name: str) -> None:
    link = daemon.login_link(daemon.token_of("run", f"stranger-at-{name}"))
    page.goto(f"http://{name}:{port}/")

    with page.expect_navigation():
        page.evaluate("(address) => { location.href = address }", link)

    assert page.get_by_role("heading").inner_text() == "Log in?"
    assert who(page) == "default"


def test_the_other_name_of_this_machine_has_no_part_in_the_login(page: Page, daemon: PageDaemon) -> None:
    page.goto(daemon.url.replace("127.0.0.1", "localhost") + "/app/")

    assert page.evaluate("fetch('/api/v1/auth/me').then((answer) => answer.status)") == 401
