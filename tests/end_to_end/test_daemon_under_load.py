"""A tenth of what `make soak` does to a daemon: many sessions at once, then `kill -9` and a start. No time counts."""

from pathlib import Path

import warm_python
from daemon_load import SETTINGS
from daemon_process import DaemonProcess
from daemon_soak import soak


async def test_nothing_is_lost_under_load_and_everything_is_back_after_a_crash(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()

    with DaemonProcess(tmp_path / "home", SETTINGS, keeper=warm_python.shared_keeper()) as daemon:
        seen = await soak(daemon, work, streaming=10, idle=100, turns=2, delay_ms=5)

    assert seen.events > 1000
    assert len(seen.health) > 1
