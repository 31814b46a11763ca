"""What tests of the page use: one browser, one login, one tab and one daemon for all of them.

`page` is a tab that is logged in and shows nothing yet, `new_tab` opens further ones, `stranger` is one of a browser
that nobody has logged in. `daemon` makes sessions for them to show, and whatever the browser complains of fails the
test unless it said so before: `complaints.expect("status of 401")`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from .chromium import Chromium, Complaints
from .page_daemon import PageDaemon, page_daemon
from .visits import leave

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
    """Tabs of a browser that is logged in; it keeps nothing of what a test did but its first tab and its files."""
    context = _CHROMIUM.kept(f"logged in to {daemon.url}", daemon.url, daemon.login_link)
    with complaints.watched(context):
        try:
            yield context
        finally:
            for page in context.pages[1:]:
                page.close()
            leave(context.pages[0])
    complaints.check()


@pytest.fixture
def stranger(browser: Browser, daemon: PageDaemon, complaints: Complaints) -> Iterator[Page]:
    """A tab of another browser, where nobody is logged in."""
    context = _CHROMIUM.kept("stranger", daemon.url, lambda: "/health")
    with complaints.watched(context):
        try:
            yield context.new_page()
        finally:
            for page in context.pages[1:]:
                page.close()
            context.clear_cookies()
            context.pages[0].evaluate("localStorage.clear()")
    complaints.check()


@pytest.fixture
def new_tab(context: BrowserContext) -> Callable[[], Page]:
    """Open a tab."""
    return context.new_page


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """The tab that stays."""
    return context.pages[0]
