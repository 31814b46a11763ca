"""What exists once is not spelled out a second time."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "modules").rglob("*.py")]


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        ("killpg", "src/amplifier_system/process_table.py"),
        ("start_new_session", "src/amplifier_system/processes.py"),
        ("set_running_or_notify_cancel", "src/amplifier_system/threads.py"),  # work that is left behind in a thread
        ("removeprefix('profiles/')", "src/amplifierd/profiles/documents/document.py"),  # the forms of `extends`
        ('"amplifier.modules"', "src/amplifier_core/packages.py"),
        ('"__amplifier_module_type__"', "src/amplifier_core/packages.py"),
        ('"amplifier_module_', "src/amplifier_core/packages.py"),
        ('"amplifier-module-', "src/amplifier_core/packages.py"),
        ('"provider-"', "src/amplifier_core/packages.py"),
        ("'provider-'", ""),
        ('"provider-{', ""),
        (
            "asyncio.shield(asyncio.to_thread",
            "",
        ),  # `run_to_end` instead: a shield alone leaves work behind
    ],
)
def test_it_has_one_owner(words: str, owner: str) -> None:
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if words in path.read_text(encoding="utf-8")}

    assert found == {owner} - {""}
