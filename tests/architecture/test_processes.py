"""Who starts programs and sends signals by themselves, and not through `amplifier_system.processes`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "modules").rglob("*.py")]

STARTS = re.compile(
    r"\bsubprocess\.(?:run|Popen|call|check_\w+|get\w*output)\(|\bfrom (?:asyncio\.)?subprocess|\bcreate_subprocess_\w+"
    r"|\bos\.(?:fork|forkpty|posix_spawnp?|spawn\w+|system|popen|exec[lv]\w*)\(|\bmultiprocessing\b|ProcessPoolExecutor"
)
SIGNALS = re.compile(r"\bos\.kill\(|\bpidfd_send_signal\(|\bkillpg\b|\.send_signal\(")

MAY_START = {
    "src/amplifier_system/processes.py": "the owner",
    "src/amplifier_kit/sandbox/proxy.py": "the shim in a sandbox becomes the command it stands before",
    "src/amplifierd/control/background.py": "a daemon outlives the command that starts it",
    "src/amplifierd/control/main.py": "Ctrl-C at the terminal is for the daemon, too; asks systemd, and waits for it",
    "src/amplifierd/server/events/renderer.py": "a program of ours, which starts nothing and ends with its input",
    "src/amplifierd/store/postgres/local_server.py": "runs as another user and ends its own children",
    "src/amplifierd/store/hold.py": "asks `ps`, and waits for the answer",
    "src/amplifier_cli/chat/chat_input.py": "asks the clipboard, and waits for the answer",
    "src/amplifier_cli/commands/doctor.py": "asks a program for its version, and waits for the answer",
    "src/amplifier_cli/commands/provider.py": "runs the installer at the person's word, and waits for its end",
    "src/amplifier_cli/terminal/render.py": "a notice on the desktop that outlives the command",
}

MAY_SIGNAL = {
    "src/amplifier_system/process_table.py": "the owner",
    "src/amplifier_system/processes.py": "ends the process it runs in",
    "src/amplifier_kit/sandbox/program.py": "the first process of a namespace takes all others with it",
    "src/amplifierd/control/background.py": "asks the daemon to stop",
    "src/amplifierd/store/postgres/local_server.py": "PostgreSQL has signals of its own for how to stop",
    "src/amplifier_cli/chat/chat_input.py": "ends the process it runs in by the signal that came",
}


@pytest.mark.parametrize(("pattern", "allowed"), [(STARTS, MAY_START), (SIGNALS, MAY_SIGNAL)], ids=["start", "signal"])
def test_programs_are_started_and_ended_in_the_places_that_are_listed(
    pattern: re.Pattern[str], allowed: dict[str, str]
) -> None:
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if pattern.search(path.read_text(encoding="utf-8"))}

    assert found == allowed.keys()
