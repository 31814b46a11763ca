"""The system's Chromium, driven by Playwright: found, started once for all tests of the page, and listened to."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Playwright, Request, WebError, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_APPLICATIONS = ("Chromium.app/Contents/MacOS/Chromium", "Google Chrome.app/Contents/MacOS/Google Chrome")
_MISSING = "there is no Chromium here; get it with the system's packages, for example: sudo apt-get install chromium"
_UNUSED = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),  # two pages of the browser's own that every new window loads
    *("HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "OptimizationHints"),
    *("PaintHolding", "DestroyProfileOnBrowserClose", "AvoidUnnecessaryBeforeUnloadCheckSync"),
)
"""Features that a test has no use for; the list replaces that of Playwright, whose names follow ours."""

_ARGUMENTS = (
    f"--disable-features={','.join(_UNUSED)}",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--process-per-site",  # one process draws all tabs of the page
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",  # nothing leaves the machine
    *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium has no sandbox for root
)
_REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`content policy: ${event.effectiveDirective} ${event.blockedURI}`));
"""


def find_chromium() -> str | None:
    """Return the browser of this machine, None when there is none."""
    found = (shutil.which(name) for name in _NAMES)
    installed = (str(Path("/Applications") / name) for name in _APPLICATIONS if (Path("/Applications") / name).exists())
    return next((path for path in (*found, *installed) if path), None)


class Chromium:
    """One browser process. While it runs, its event loop is that of the thread, so no other test can use one."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._kept: dict[str, BrowserContext] = {}

    def browser(self) -> Browser:
        if self._browser is None:
            path = find_chromium()
            if path is None:
                pytest.skip(_MISSING)
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(executable_path=path, args=[*_ARGUMENTS])
        return self._browser

    def kept(self, name: str, url: str, first: Callable[[], str]) -> BrowserContext:
        """Return tabs that stay from test to test; one is there from the beginning, and shows the first address."""
        if name not in self._kept:
            self._kept[name] = new_context(self.browser(), url)
            self._kept[name].new_page().goto(first())
        return self._kept[name]

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()
        self._browser = self._playwright = None
        self._kept.clear()


def new_context(browser: Browser, url: str) -> BrowserContext:
    """Return tabs that share cookies and storage with each other, and say what breaks the content policy."""
    context = browser.new_context(base_url=url, reduced_motion="reduce")
    context.add_init_script(_REPORT_VIOLATIONS)
    return context


class Complaints:
    """What a browser found wrong: errors and warnings, a broken content policy, and whatever it asked other hosts for.

    A test that provokes some says so with `expect`; all others end with none.
    """

    def __init__(self, own: Iterable[str]) -> None:
        self.found: list[str] = []
        self._own = {urlsplit(url).netloc for url in own}
        self._expected: list[re.Pattern[str]] = []

    @contextmanager
    def watched(self, context: BrowserContext) -> Iterator[None]:
        """Listen to the tabs of a browser."""
        context.on("console", self._hear)
        context.on("weberror", self._fail)
        context.on("request", self._see)
        try:
            yield
        finally:
            context.remove_listener("console", self._hear)
            context.remove_listener("weberror", self._fail)
            context.remove_listener("request", self._see)

    def expect(self, pattern: str) -> None:
        """Let complaints pass that have this in them."""
        self._expected.append(re.compile(pattern))

    def check(self) -> None:
        unexpected = [one for one in self.found if not any(pattern.search(one) for pattern in self._expected)]
        assert not unexpected, "\n".join(unexpected)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _fail(self, error: WebError) -> None:
        self.found.append(f"uncaught: {error.error}")

    def _see(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https", "ws", "wss") and address.netloc not in self._own:
            self.found.append(f"another host: {request.url}")
