"""What a browser that was never here has to fetch before it shows something."""

from __future__ import annotations

from playwright.sync_api import Browser, Request, expect

from .chromium import Complaints, new_context
from .page_daemon import PageDaemon

MOST_BYTES = 200_000
FETCHED = """
performance.getEntriesByType("resource").filter((one) => one.name.includes("/app/"))
  .reduce((bytes, one) => bytes + one.transferSize, 0)
"""


def test_the_first_load_is_small_and_the_second_fetches_no_file_again(
    browser: Browser, daemon: PageDaemon, complaints: Complaints
) -> None:
    finished: list[Request] = []
    with new_context(browser, daemon.url) as context, complaints.watched(context):
        page = context.new_page()
        page.on("requestfinished", lambda request: finished.append(request))
        page.goto(daemon.login_link())
        expect(page.get_by_role("navigation").first).to_be_visible()
        first = [request for request in finished if "/app/" in request.url]
        sizes = [request.sizes() for request in first]

        page.reload()
        expect(page.get_by_role("navigation").first).to_be_visible()

        assert len(first) > 5
        assert sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes) < MOST_BYTES
        assert page.evaluate(FETCHED) == 0
    complaints.check()
