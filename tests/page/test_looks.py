"""How the page looks: contrast, names and small screens; and what its shell asks for."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .accessibility import faults
from .page_daemon import PageDaemon
from .sample_sessions import asking_session, calls, create, plan_of

PAGE = Path(str(files("amplifierd.page")))
FIRST = ("early.js", "app.js", "views/sessions.js", "views/conversation/conversation.js")
_IMPORT = re.compile(r'^import [^;]*?"(\.[^"]+)";', re.MULTILINE)


@pytest.fixture(scope="module")
def talked(daemon: PageDaemon) -> str:
    """A session with an answer, a tool call that failed and one that worked."""
    (daemon.directory / "looks.md").write_text("text\n")
    looks = {"thinking": "Hm.", **calls("read_file", text="I look.", file_path="looks.md")}
    answer = "## Done\n\n`code`, **more**\n\n```python\ndef f(x):\n    return x  # one\n```\n\n| a |\n|---|\n| 1 |\n"
    session_id = create(daemon, plan_of(looks, calls("read_file", file_path="missing.md"), answer), "Looked at")
    daemon.run(session_id, "show me")
    return session_id


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_everything_can_be_read_named_and_fits(page: Page, talked: str, theme: str, width: int) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    found = {}
    for address, awaited in (
        ("/app/", "Looked at"),
        ("/app/new", "foundation/offline"),
        (f"/app/sessions/{talked}", "show me"),
    ):
        page.goto(address)
        expect(page.get_by_role("main").get_by_text(awaited).first).to_be_visible()
        for summary in page.locator("tool-card summary, .thinking summary").all():
            summary.click()
        found[address] = faults(page)

    assert found == {address: [] for address in found}


def test_a_question_can_be_read_in_the_dark(page: Page, daemon: PageDaemon) -> None:
    page.emulate_media(color_scheme="dark")
    session_id = asking_session(daemon, "looked-at.txt", "Asks in the dark")
    daemon.begin(session_id, "write it")
    page.goto(f"/app/sessions/{session_id}")
    expect(page.get_by_role("region", name="Approval needed")).to_be_visible()

    found = faults(page)

    daemon.api.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).raise_for_status()
    assert found == []


def test_the_login_can_be_read(stranger: Page) -> None:
    stranger.goto("/app/")
    expect(stranger.get_by_label("Token")).to_be_visible()

    assert faults(stranger) == []


def test_the_shell_asks_at_once_for_every_module_that_it_and_the_first_views_need() -> None:
    needed, waiting = set[Path](), [PAGE / name for name in FIRST]
    while waiting:
        module = waiting.pop()
        if module not in needed:
            needed.add(module)
            waiting += [
                (module.parent / name).resolve() for name in _IMPORT.findall(module.read_text(encoding="utf-8"))
            ]
    named = set(re.findall(r'(?:modulepreload" href|src)="/app/([^"]+\.js)"', (PAGE / "index.html").read_text("utf-8")))

    assert named == {str(module.relative_to(PAGE.resolve())) for module in needed}
