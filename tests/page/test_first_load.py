"""What a browser has to fetch before it shows the stranger."""

from __future__ import annotations

from playwright.sync_api import Page, Request, expect

from .page_daemon import PageDaemon

MOST_BYTES = 200_000
FETCHED = """
performance.getEntriesByType("resource").filter((one) => one.name.includes("/app/"))
  .reduce((bytes, one) => bytes + one.transferSize, 0)
"""


def test_the_first_load_is_small_and_the_second_fetches_no_file_again(stranger: Page, daemon: PageDaemon) -> None:
    finished: list[Request] = []
    stranger.on("requestfinished", lambda request: finished.append(request))
    stranger.goto(daemon.login_link())
    expect(stranger.get_by_role("navigation").first).to_be_visible()
    first = [request for request in finished if "/app/" in request.url]
    sizes = [request.sizes() for request in first]

    stranger.reload()
    expect(stranger.get_by_role("navigation").first).to_be_visible()

    assert len(first) > 5
    assert sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes) < MOST_BYTES
    assert stranger.evaluate(FETCHED) == 0
