"""Every road to a screen passes the border: what draws on a terminal, or into the page, cannot go around it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = [*(ROOT / "src" / "amplifier_cli").rglob("*.py"), *(ROOT / "src" / "amplifierd" / "control").rglob("*.py")]


@pytest.mark.parametrize(
    ("road", "owners"),
    [
        (r"PromptSession\(", {"prompt_screen.py"}),  # what prompt_toolkit draws
        (r"\bConsole\(", {"markdown.py"}),  # what rich draws
        (
            r"import .*\bsequence\b",
            {"chat_input.py", "markdown.py", "render.py"},
        ),
        (r"std(out|err)\.buffer|\bos\.write\(|/dev/tty|__stderr__|__stdout__\.", set()),
        (r"\becho\(", {"completion.py", "main.py", "version.py"}),  # deletes sequences, in texts of our own only
    ],
)
def test_a_road_to_the_terminal_has_known_users(road: str, owners: set[str]) -> None:
    found = {path.name for path in COMMANDS if re.search(road, path.read_text(encoding="utf-8"))}

    assert found == owners


@pytest.mark.parametrize(
    ("road", "owners"),
    [
        (r"\.innerHTML|\.outerHTML =|insertAdjacent|DOMParser|createContextual", {"dom.js"}),
        (r"\.(textContent|innerText) =", {"dom.js"}),
        (r"createTextNode|appendData", {"prose.js"}),  # of texts that have passed `plain`
        (r"document\.title =", {"title.js"}),
        (r"new Notification\(", {"notices.js"}),
        (r"\\u\{?202a|\\u001b", set()),  # a border of one's own
    ],
)
def test_a_road_into_the_page_has_one_owner(road: str, owners: set[str]) -> None:
    pages = (ROOT / "src" / "amplifierd" / "page").rglob("*.js")
    found = {path.name for path in pages if re.search(road, path.read_text(encoding="utf-8"))}

    assert found == owners


def test_both_commands_open_their_screens_before_anything_else_is_written() -> None:
    for main in ("amplifier_cli/main.py", "amplifierd/control/main.py"):
        assert "open_screens()" in (ROOT / "src" / main).read_text(encoding="utf-8")
