"""Many tabs of one browser: all of them are live, and the daemon serves them one stream of lists and one of details."""

from __future__ import annotations

import os
from collections.abc import Callable

from playwright.sync_api import Page, expect

from .page_daemon import PageDaemon
from .sample_sessions import create, plan_of

TABS = int(os.environ.get("AMPLIFIER_TABS", "8"))


def streams(daemon: PageDaemon) -> int:
    """Return how many streams the daemon serves."""
    count: int = daemon.api.get("/status").json()["queues"]["subscribers"]
    return count


def test_all_tabs_share_two_streams(page: Page, new_tab: Callable[[], Page], daemon: PageDaemon) -> None:
    served = 0
    tabs = [page, *(new_tab() for _ in range(TABS - 1))]
    for tab in tabs:
        tab.goto("/app/")
        expect(tab.get_by_role("list", name="Sessions", exact=True)).to_be_visible()
        served = served or streams(daemon)

    session_id = create(daemon, plan_of("To all of them."), "Seen by every tab")

    for tab in tabs:
        expect(tab.get_by_text("Seen by every tab").first).to_be_visible()
    assert streams(daemon) <= served
    for tab in tabs[:3]:
        tab.goto(f"/app/sessions/{session_id}")
        expect(tab.get_by_role("textbox", name="Message to the agent")).to_be_visible()
    daemon.run(session_id, "Say it.")
    for tab in tabs[:3]:
        expect(tab.get_by_role("log").get_by_text("To all of them.")).to_be_visible()
    assert streams(daemon) <= served + 1
