"""A home that a real daemon serves, in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import warm_python

from amplifierd.control import background
from amplifierd.paths import Paths
from amplifierd.server.run_file import RunningDaemon, find_running

_OTHERS = ("AMPLIFIER", "ANTHROPIC_", "OPENAI_")
_PATIENCE_S = 60.0


@contextmanager
def served_home(home: Path, *options: str) -> Iterator[RunningDaemon]:
    """Serve a home until the block ends, on a free port of loopback unless the options say otherwise."""
    paths = Paths.from_environment(home, {})
    command = [sys.executable, "-m", "amplifierd", "--home", home, "serve", *(options or ("--port", "0")), "--offline"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)}
    daemon = warm_python.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield _until_listening(paths, daemon)
    finally:
        background.stop(paths)
        daemon.wait(_PATIENCE_S)


def _until_listening(paths: Paths, daemon: warm_python.Popen) -> RunningDaemon:
    limit = time.monotonic() + _PATIENCE_S
    while (running := find_running(paths)) is None or running.process.pid != daemon.pid:
        assert daemon.poll() is None, f"the daemon ended with {daemon.returncode}"
        assert time.monotonic() < limit, "the daemon does not listen"
        time.sleep(0.01)
    return running
