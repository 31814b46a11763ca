"""A page whose daemon goes away and comes back: it says so, and goes on by itself."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from playwright.sync_api import Browser, expect

from .chromium import Complaints, new_context
from .page_daemon import page_daemon
from .sample_sessions import ASKS, calls, create, plan_of

_REFUSED = "CONNECTION_REFUSED|CONNECTION_RESET|SOCKET_NOT_CONNECTED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING"
_AWAY = f"ERR_({_REFUSED})|status of 503"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_the_page_outlives_a_killed_daemon_and_shows_the_prompts_that_it_left_over(
    browser: Browser, tmp_path: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    context, complaints = new_context(browser, url), Complaints([url])
    complaints.expect(_AWAY)
    with complaints.watched(context), context:
        page = context.new_page()
        log, field = page.get_by_role("log"), page.get_by_role("textbox", name="Message to the agent")
        queue = page.get_by_role("region", name="Queued prompts")
        with page_daemon(tmp_path, port) as daemon:
            writes = calls("write_file", file_path="never.txt", content="x")
            plan = plan_of("You said: {{last_user}}", writes, hooks=[ASKS])
            session_id = create(daemon, plan, "Outlives its daemon")
            daemon.run(session_id, "first")
            daemon.begin(session_id, "write it")
            for prompt in ("left over", "not wanted any more"):
                queued = {"prompt": prompt, "queue": True}
                daemon.api.post(f"/sessions/{session_id}/execute/stream", json=queued).raise_for_status()
            page.goto(daemon.login_link())
            page.goto(f"/app/sessions/{session_id}")
            expect(log).to_contain_text("You said: first")
            expect(queue.get_by_role("listitem")).to_have_text(["left over", "not wanted any more"])
            os.kill(daemon.api.get("/status").json()["pid"], signal.SIGKILL)
            lost = page.get_by_text("Connection to the daemon lost")
            expect(lost).to_be_visible()
        field.fill("a draft")
        page.get_by_role("link", name="Daemon", exact=True).click()
        expect(page.get_by_role("heading", name="No connection")).to_be_visible()

        with page_daemon(tmp_path, port) as daemon:
            expect(lost).to_be_hidden()
            expect(page.get_by_role("heading", name="State")).to_be_visible()
            page.go_back()
            daemon.api.post(f"/sessions/{session_id}/messages", json={"content": "from elsewhere"}).raise_for_status()
            expect(queue).to_contain_text("were left over")
            queue.get_by_role("listitem").nth(1).get_by_role("button", name="Remove from the queue").click()
            expect(queue.get_by_role("listitem")).to_have_text(["left over"])
            expect(field).to_have_value("a draft")
            field.fill("")
            queue.get_by_role("button", name="Take out and edit").click()
            expect(queue).to_have_count(0)
            expect(field).to_have_value("left over")
            field.press("Enter")
            expect(log).to_contain_text("You said: left over")
            expect(log).to_contain_text("from elsewhere")
            expect(page.locator(".session-title .status")).to_have_text("Idle")
            page.close()
    complaints.check()
