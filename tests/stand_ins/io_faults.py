"""Calls that change files and fail, whoever makes them: the n-th one, in the process that is told so.

The process has to be started with the library of `io_faults.c`, which `environment` adds to its variables; processes
that it forks are armed on their own.
"""

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

MODES = {
    "fail": (1, errno.EIO),  # the call fails
    "full": (2, errno.ENOSPC),  # it fails, and so do all after it
    "short": (3, errno.EIO),  # a write takes half; any other call fails
    "stumble": (6, errno.EIO),  # a write takes half, and the next two calls fail, such as taking it back
    "crash": (4, 0),  # the process is killed before the call
    "torn": (5, 0),  # the process is killed when half is written
}
CRASHES = ("crash", "torn")

_SOURCE = Path(__file__).with_name("io_faults.c")


def environment(folder: Path) -> Mapping[str, str] | None:
    """Compile the library into a folder and return variables that load it; None without a compiler or its loader."""
    compiler = shutil.which("cc")
    if compiler is None or not Path("/proc/self/fd").is_dir():
        return None
    library = folder / "io_faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


def is_loaded() -> bool:
    return hasattr(ctypes.CDLL(None), "io_faults_arm")


def count(root: Path) -> None:
    """Count from now on what changes files below a directory."""
    _library().io_faults_arm(os.fsencode(root), 0, ctypes.c_long(0), 0)


def arm(root: Path, mode: str, number: int) -> None:
    """Let a call that changes files below a directory fail: the one with this number from now on."""
    how, error = MODES[mode]
    _library().io_faults_arm(os.fsencode(root), how, ctypes.c_long(number), error)


def disarm() -> int:
    """Let every call through again; returns how many there were."""
    return int(_library().io_faults_disarm())


def failed_call() -> str:
    """Return the call that failed, and its file; empty if none did."""
    return os.fsdecode(_library().io_faults_what())


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.io_faults_disarm.restype = ctypes.c_long
    library.io_faults_what.restype = ctypes.c_char_p
    return library
