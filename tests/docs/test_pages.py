"""Every page of the documentation runs as it is written, and its links lead somewhere."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md"))
)

OTHERS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("C*.md"), *(ROOT / "modules").rglob("*.md"), *(ROOT / "registry").rglob("*.md"))
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

Open = Callable[[str], Any]


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_runs_as_it_is_written(page: Open, reader: Any, name: str) -> None:
    if "$ curl " in page(name).text and shutil.which("curl") is None:
        pytest.skip("the page uses curl, which is not installed")
    await reader.read(page(name))


@pytest.mark.parametrize("name", [*PAGES, *OTHERS])
def test_the_links_of_a_page_lead_somewhere(page: Open, name: str) -> None:
    broken = []
    for link in LINK.findall(page(name).prose):
        if link.startswith(("https://", "mailto:")):
            continue
        target, _, heading = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        if not path.exists() or (heading and heading not in _anchors(path)):
            broken.append(link)

    assert broken == []


def _anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, made as the usual viewers make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
