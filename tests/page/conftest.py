"""What tests of the page use: one browser and one daemon for all of them, and a tab of its own for each.

`page` is a tab that is logged in, `new_tab` opens further ones, `daemon` makes sessions for it to show, and whatever
the browser complains of fails the test unless it said so before: `complaints.expect("status of 401")`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from .chromium import Chromium, Complaints
from .page_daemon import PageDaemon, page_daemon

_HERE = Path(__file__).parent
_CHROMIUM = Chromium()

expect.set_options(timeout=30_000)  # how long a busy machine may take to show something


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """End the browser after the last test of the page: the tests of others need the thread's event loop."""
    try:
        return (yield)
    finally:
        if nextitem is None or _HERE not in nextitem.path.parents:
            _CHROMIUM.close()


@pytest.fixture
def browser() -> Browser:
    """The browser that all tests of the page share; a test without one is skipped, and says how to get it."""
    return _CHROMIUM.browser()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageDaemon]:
    """The daemon that all tests of the page share: use sessions of your own, and change nothing that is everybody's."""
    with page_daemon(tmp_path_factory.mktemp("page")) as served:
        yield served


@pytest.fixture
def complaints(daemon: PageDaemon) -> Complaints:
    """What the browser finds wrong; checked after the test."""
    return Complaints([daemon.url])


@pytest.fixture
def context(browser: Browser, daemon: PageDaemon, complaints: Complaints) -> Iterator[BrowserContext]:
    """Tabs that share cookies and storage with each other, and with no other test."""
    context = browser.new_context(base_url=daemon.url, reduced_motion="reduce")
    complaints.watch(context)
    try:
        yield context
    finally:
        context.close()
    complaints.check()


@pytest.fixture
def new_tab(context: BrowserContext) -> Callable[[], Page]:
    """Open a tab; nobody is logged in unless another one is."""
    return context.new_page


@pytest.fixture
def page(context: BrowserContext, daemon: PageDaemon) -> Page:
    """A tab that a link has logged in, at the list of sessions."""
    page = context.new_page()
    page.goto(daemon.login_link())
    expect(page.get_by_role("navigation").first).to_be_visible()
    return page
