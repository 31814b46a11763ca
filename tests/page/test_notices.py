"""What a browser tells whoever looks elsewhere: in the name of the tab, and by notices of the system."""

from __future__ import annotations

import re
from collections.abc import Callable

from border_corpus import LINES, hidden
from playwright.sync_api import Page, expect

from amplifier_system.visible import visible

from .page_daemon import PageDaemon
from .sample_sessions import ASKS, asking_session, calls, create, plan_of
from .visits import visit

LOOK_AWAY = """
() => {
  window.told = [];
  window.Notification = class extends EventTarget {
    constructor(title, { body }) {
      super();
      told.push([title, body]);
    }
  };
  Object.defineProperty(document, "hidden", { get: () => true });
}
"""
"""The tab is hidden, and what it tells the system is kept: a browser without a screen shows no notices."""


def test_who_looks_elsewhere_is_told_that_an_agent_asks_and_is_done(
    daemon: PageDaemon, new_tab: Callable[[], Page]
) -> None:
    tab = new_tab()
    tab.context.grant_permissions(["notifications"], origin=daemon.url)
    visit(tab, "/app/")
    bell = tab.get_by_role("button", name="Notify me")
    bell.press("Enter")
    expect(bell).to_have_attribute("aria-pressed", "true")
    tab.evaluate(LOOK_AWAY)
    session_id = asking_session(daemon, "noticed.txt", "Asks from afar", "Done.")

    daemon.begin(session_id, "write it")
    tab.wait_for_function("() => told.length === 1")
    expect(tab).to_have_title(re.compile(r"^\(\d+\) Sessions"))
    (asked,) = daemon.api.get(f"/sessions/{session_id}/approvals").json()["pending"]
    answer = f"/sessions/{session_id}/approvals/{asked['request_id']}"
    daemon.api.post(answer, json={"decision": "allow"}).raise_for_status()

    tab.wait_for_function("() => told.length === 2")
    titles = [title for title, _ in tab.evaluate("told")]
    assert titles == ["Asks from afar waits for approval", "Asks from afar has answered"]
    expect(tab).to_have_title("Sessions · Amplifier")


def test_a_notice_shows_every_character_of_a_name_and_of_what_is_asked(
    daemon: PageDaemon, new_tab: Callable[[], Page]
) -> None:
    tab = new_tab()
    tab.context.grant_permissions(["notifications"], origin=daemon.url)
    visit(tab, "/app/")
    bell = tab.get_by_role("button", name="Notify me")
    bell.press("Enter")
    expect(bell).to_have_attribute("aria-pressed", "true")
    tab.evaluate(LOOK_AWAY)
    odd = "".join(LINES).replace("/", "")
    runs = calls("bash", text="I run it.", command=f"echo '{odd[:60]}<b>bold</b>'")
    parts = {"tools": [{"module": "tool-bash"}], "hooks": [ASKS]}
    session_id = create(daemon, plan_of(runs, "The end.", **parts), f"name {odd[:150]}")

    daemon.begin(session_id, "write it")
    tab.wait_for_function("() => told.length === 1")
    ((title, body),) = tab.evaluate("told")
    (asked,) = daemon.api.get(f"/sessions/{session_id}/approvals").json()["pending"]
    answer = f"/sessions/{session_id}/approvals/{asked['request_id']}"
    daemon.api.post(answer, json={"decision": "deny"}).raise_for_status()

    assert hidden(f"{title}{body}") == set()
    assert visible(LINES[0]) in title
    assert visible(odd[:20]) in body
