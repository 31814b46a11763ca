"""A page whose daemon goes away and comes back: it says so, and goes on by itself."""

from __future__ import annotations

import socket
from pathlib import Path

from playwright.sync_api import Browser, expect

from .chromium import Complaints, new_context
from .page_daemon import page_daemon
from .sample_sessions import create, plan_of

_AWAY = "ERR_CONNECTION_(REFUSED|RESET)|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|status of 503"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_the_page_says_that_it_lost_the_daemon_and_goes_on_when_it_is_back(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    context, complaints = new_context(browser, url), Complaints([url])
    complaints.expect(_AWAY)
    with complaints.watched(context), context:
        page = context.new_page()
        log, field = page.get_by_role("log"), page.get_by_role("textbox", name="Message to the agent")
        with page_daemon(tmp_path, port) as daemon:
            session_id = create(daemon, plan_of("Before.", "After."), "Outlives its daemon")
            daemon.run(session_id, "first")
            page.goto(daemon.login_link())
            page.goto(f"/app/sessions/{session_id}")
            expect(log).to_contain_text("Before.")
        lost = page.get_by_text("Connection to the daemon lost")
        expect(lost).to_be_visible()
        field.fill("second")

        with page_daemon(tmp_path, port) as daemon:
            expect(lost).to_be_hidden()
            daemon.api.post(f"/sessions/{session_id}/messages", json={"content": "from elsewhere"}).raise_for_status()
            field.press("Enter")
            expect(log).to_contain_text("from elsewhere")
            expect(log).to_contain_text("second")
            expect(page.locator(".session-title .status")).to_have_text("Idle")
            page.close()
    complaints.check()
