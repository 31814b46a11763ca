"""Tasks are started in two places: one for work that has an end, one for loops that must not end."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

STARTS = re.compile(r"\.create_task\(|\bcreate_task\b\s*[,)]|import .*\bcreate_task\b|\bensure_future\b|\bTaskGroup\b")
OWNERS = {
    "src/amplifier_system/tasks.py": "start_task, run_to_end and Supervisor.start",
}
KERNEL = "src/amplifier_core/"

MODULES = {
    "tool-bash": "one watches each program in the background, and ends with it",
    "tool-mcp": "those that own, read and write a server's process end with it, and its errors are those of a call",
    "tool-search": "one reads what the search complains about while its results are read, and is awaited",
    "tool-web": "one reads the next piece of a body, and is awaited or cancelled with it",
}
"""Modules know nothing of our helpers. What they start ends with a call or a process, and each says with what."""


def _starting(folder: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        count = len(STARTS.findall(path.read_text()))
        if count and not name.startswith(KERNEL):  # it knows nothing of ours, and starts tasks for its callers
            found[name] = count
    return found


def test_only_the_two_helpers_start_tasks() -> None:
    assert set(_starting("src")) == set(OWNERS)


def test_only_modules_that_say_with_what_their_tasks_end_start_any() -> None:
    assert {name.split("/")[1] for name in _starting("modules")} == set(MODULES)
