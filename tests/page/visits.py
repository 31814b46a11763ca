"""Going from view to view of the page as its own links do, which costs a fraction of loading it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page

_FOLLOW = """
async (path) => {
  if (!document.querySelector("page-frame")) return false;
  const before = document.querySelector(".session-body > *") ?? document.querySelector("main > *");
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
  for (let frame = 0; before?.isConnected && frame < 600; frame += 1) await new Promise(requestAnimationFrame);
  return true;
}
"""
_FORGET = """
() => {
  if (!location.protocol.startsWith("http")) return;
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
  document.querySelectorAll(".toast, .menu").forEach((element) => element.remove());
  delete document.documentElement.dataset.theme;
  localStorage.clear();
  sessionStorage.clear();
}
"""
_SIZE = {"width": 1280, "height": 720}


def visit(page: Page, path: str) -> None:
    """Go to a path of the page: as a link does where it is shown already, else by loading it."""
    if not page.evaluate(_FOLLOW, path):
        page.goto(path)


def leave(page: Page) -> None:
    """Let a tab show nothing, and forget what was done in it."""
    is_ours = page.evaluate(_FOLLOW, "/app/nothing")
    page.evaluate(_FORGET)
    if not is_ours:
        page.goto("about:blank")  # what another site shows may still be loading, and would be seen in the next test
    if page.viewport_size != _SIZE:
        page.set_viewport_size({"width": 1280, "height": 720})


def tab_to(page: Page, wanted: Locator, most: int = 60) -> None:
    """Go on with the tabulator until something has the focus."""
    for _ in range(most):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"not reached by {most} tabulators: {wanted}")
