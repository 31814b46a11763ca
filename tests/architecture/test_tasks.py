"""Tasks are started in two places: one for work that has an end, one for loops that must not end."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

STARTS = re.compile(r"\.create_task\(|\bcreate_task\b\s*[,)]|import .*\bcreate_task\b|\bensure_future\b|\bTaskGroup\b")
OWNERS = {
    "src/amplifier_system/tasks.py": "start_task and run_to_end",
    "src/amplifier_system/supervisor.py": "Supervisor.start",
}
KERNEL = "src/amplifier_core/"


def _starting() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        count = len(STARTS.findall(path.read_text()))
        if count and not name.startswith(KERNEL):  # it knows nothing of ours, and starts tasks for its callers
            found[name] = count
    return found


def test_only_the_two_helpers_start_tasks() -> None:
    assert set(_starting()) == set(OWNERS)
