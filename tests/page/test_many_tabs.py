"""Many tabs of one browser: all of them are live, and the daemon serves them one stream of lists and one of details."""

from __future__ import annotations

import os
from collections.abc import Callable

from playwright.sync_api import Page, expect

from .chromium import Complaints
from .page_daemon import PageDaemon
from .sample_sessions import create, plan_of
from .visits import visit

TABS = int(os.environ.get("AMPLIFIER_TABS", "2"))
PORTS = 100
JOIN = """
([ports, sessions]) => {
  const address = document.querySelector('script[src$="/app.js"]').src.replace(/app\\.js$/, "stream-worker.js");
  window.heard = Array.from({ length: ports }, () => new Set());
  window.workers = window.heard.map((heard) => {
    const worker = new SharedWorker(address, { type: "module" });
    worker.port.onmessage = ({ data }) => (data.events ?? []).forEach((one) => heard.add(`${one.part} ${one.event}`));
    worker.port.postMessage({ type: "join" });
    worker.port.postMessage({ type: "watch", sessions });
    return worker;
  });
}
"""
"""Connects to the worker of the page as so many tabs would, and notes what each of them hears."""


def streams(daemon: PageDaemon) -> int:
    """Return how many streams the daemon serves."""
    count: int = daemon.api.get("/status").json()["queues"]["subscribers"]
    return count


def test_all_tabs_share_two_streams(page: Page, new_tab: Callable[[], Page], daemon: PageDaemon) -> None:
    served = 0
    tabs = [page, *(new_tab() for _ in range(TABS - 1))]
    for tab in tabs:
        visit(tab, "/app/")
        expect(tab.get_by_role("list", name="Sessions", exact=True)).to_be_visible()
        served = served or streams(daemon)

    session_id = create(daemon, plan_of("To all of them."), "Seen by every tab")

    for tab in tabs:
        expect(tab.get_by_text("Seen by every tab").first).to_be_visible()
    assert streams(daemon) <= served
    for tab in tabs[:3]:
        visit(tab, f"/app/sessions/{session_id}")
        expect(tab.get_by_role("textbox", name="Message to the agent")).to_be_visible()
    daemon.run(session_id, "Say it.")
    for tab in tabs[:3]:
        expect(tab.get_by_role("log").get_by_text("To all of them.")).to_be_visible()
    assert streams(daemon) <= served + 1


def test_a_hundred_clients_of_the_worker_share_two_streams(new_tab: Callable[[], Page], daemon: PageDaemon) -> None:
    page = new_tab()
    session_id = create(daemon, plan_of("To all of them."), "Watched a hundred times")
    page.goto(f"/app/sessions/{session_id}")
    expect(page.get_by_role("textbox", name="Message to the agent")).to_be_visible()
    page.wait_for_function("() => document.querySelector('page-frame .recent-link')")
    served = streams(daemon)

    page.evaluate(JOIN, [PORTS, [session_id]])
    daemon.run(session_id, "Say it.")

    for name in ("overview execution:done", "detail execution:done", "detail llm:response"):
        page.wait_for_function("(name) => window.heard.every((one) => one.has(name))", arg=name)
    assert streams(daemon) == served


def test_a_session_that_is_gone_takes_the_events_of_no_other(
    page: Page, new_tab: Callable[[], Page], daemon: PageDaemon, complaints: Complaints
) -> None:
    complaints.expect("status of 404")
    gone, present = create(daemon, plan_of(), "Deleted elsewhere"), create(daemon, plan_of("Still heard."), "Stays")
    visit(page, f"/app/sessions/{gone}")
    expect(page.get_by_role("textbox", name="Message to the agent")).to_be_visible()
    daemon.api.delete(f"/sessions/{gone}").raise_for_status()

    other = new_tab()
    other.goto(f"/app/sessions/{present}")
    expect(other.get_by_role("textbox", name="Message to the agent")).to_be_visible()
    daemon.run(present, "Say it.")

    expect(other.get_by_role("log").get_by_text("Still heard.")).to_be_visible()
