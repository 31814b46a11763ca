"""Runs a script as somebody without a key does, and ends it where it tries to leave the machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import warm_python

_GUARD = """
import os, sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        os.write(2, f"the machine was left: {event} {args}".encode())
        os._exit(3)

sys.addaudithook(refuse)
"""


def offline_environment(folder: Path) -> dict[str, str]:
    """Return an environment without any key, with an empty home directory and an empty place for temporary files.

    Every interpreter in it ends, with a message, when it looks up a name or connects to anything.
    """
    for name in ("home", "tmp", "guard"):
        (folder / name).mkdir()
    (folder / "guard/sitecustomize.py").write_text(_GUARD)
    return {
        "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": str(folder / "guard"),
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "TERM": "xterm",
    }


def run_offline(script: Path, *arguments: str, folder: Path) -> str:
    """Run a script in a folder and return what it printed; it must succeed and complain about nothing."""
    run = warm_python.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=offline_environment(folder),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout
