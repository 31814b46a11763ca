"""How the page looks: contrast, names and small screens; and what its shell asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from .accessibility import BOTH, faults
from .chromium import Complaints
from .page_daemon import PageDaemon
from .sample_sessions import ASKS, calls, create, plan_of, session_of
from .visits import visit

PAGE = Path(str(files("amplifierd.page")))
FIRST = ("early.js", "app.js", "views/sessions.js", "views/conversation/conversation.js")
_IMPORT = re.compile(r'^import [^;]*?"(\.[^"]+)";', re.MULTILINE)


WIDTHS = (360, 1280, 3840)


@pytest.fixture
def busy(daemon: PageDaemon) -> Iterator[str]:
    """A session with an answer, a tool call that failed and one that worked, and one that waits to be allowed."""
    (daemon.directory / "looks.md").write_text("text\n")
    looks = {"thinking": "Hm.", **calls("read_file", text="I look.", file_path="looks.md")}
    answer = "## Done\n\n`code`, **more**\n\n```python\ndef f(x):\n    return x  # one\n```\n\n| a |\n|---|\n| 1 |\n"
    asks = calls("write_file", file_path="looked-at.txt", content="x")
    script = (looks, calls("read_file", file_path="missing.md"), answer, asks)
    session_id = create(daemon, plan_of(*script, hooks=[ASKS]), "Looked at, and given a name that fills every line")
    daemon.run(session_id, "show me")
    daemon.begin(session_id, "write it")
    yield session_id
    daemon.api.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).raise_for_status()


def test_everything_can_be_read_named_and_fits(
    page: Page, daemon: PageDaemon, busy: str, complaints: Complaints
) -> None:
    complaints.expect("status of 404")
    of_profile = session_of(daemon, "foundation/offline")
    daemon.run(of_profile, "read looks.md, as @looks.md says")
    turn = page.get_by_role("button", name="Turn 1")
    shown: dict[str, tuple[Locator, Callable[[], None]]] = {
        "/": (page.get_by_text("Looked at").first, lambda: None),
        "/?focus=search": (page.get_by_role("searchbox"), page.get_by_role("button", name="Deleted sessions").click),
        "/new": (page.get_by_role("radio").nth(1), page.get_by_text("Limits", exact=True).click),
        f"/sessions/{busy}": (page.get_by_role("region", name="Approval needed"), lambda: open_all(page)),
        f"/sessions/{busy}/timeline?turn=1": (turn, page.get_by_role("button", name="Tool read_file").first.click),
        f"/sessions/{of_profile}/why": (page.locator(".part-list .part").first, lambda: open_all(page)),
        f"/sessions/{of_profile}/plan": (
            page.get_by_text("This session runs the newest build."),
            page.locator("[data-module=tool-filesystem]").click,
        ),
        "/inbox": (page.get_by_role("button", name="Allow once"), lambda: None),
        "/profiles": (page.get_by_role("link", name="offline"), lambda: None),
        "/profiles/foundation/offline": (page.get_by_text("Valid", exact=True), lambda: None),
        "/daemon": (page.get_by_text("none stored").first, page.get_by_role("button", name="New token").click),
        "/sessions/none": (page.get_by_role("heading", name="No such session"), lambda: None),
    }
    found = {}
    for address, (awaited, open_more) in shown.items():
        page.set_viewport_size({"width": WIDTHS[1], "height": 800})
        visit(page, f"/app{address}")
        expect(awaited).to_be_visible()
        open_more()
        found[address, WIDTHS[1]] = faults(page, BOTH)
        for width in (WIDTHS[0], WIDTHS[2]):
            page.set_viewport_size({"width": width, "height": 800})
            found[address, width] = faults(page)

    assert {place: wrong for place, wrong in found.items() if wrong} == {}


def open_all(page: Page) -> None:
    """Open what is folded, as far as it is seen."""
    for summary in page.locator("main summary:visible").all()[:8]:
        summary.click()


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
