"""Serving for those who work on the code: the daemon starts again when a file of ours changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_SOURCES = Path(__file__).parents[2]
_LOOK_S = 0.5


def serve_again_on_changes(arguments: Sequence[str]) -> int:
    """Run `amplifierd` with these arguments, again whenever a file changes, until it ends by itself."""
    while True:
        seen = _newest()
        process = subprocess.Popen([sys.executable, "-m", "amplifierd", *arguments])
        try:
            while process.poll() is None and _newest() == seen:
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            return process.wait()
        if process.poll() is not None:
            return process.returncode
        process.terminate()
        process.wait()


def _newest() -> float:
    return max(file.stat().st_mtime for file in _SOURCES.glob("amplifier*/**/*.py"))
