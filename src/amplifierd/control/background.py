"""The daemon in the background: started as a process of its own, found again by what it wrote in `state/run`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from amplifier_foundation.sources.store import make_directory
from amplifierd.exceptions import FormatUnsupportedError, HomeInUseError, PortInUseError, SettingsError, UnsafeBindError
from amplifierd.paths import Paths
from amplifierd.server.log_files import LOG_FILE
from amplifierd.server.run_file import RunningDaemon, find_running, home_in_use

_START_PATIENCE_S = 120.0
_STOP_PATIENCE_S = 60.0
_LOOK_S = 0.05
_OUTPUT = "daemon.out"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class StartFailedError(Exception):
    """The daemon ended before it served; `code` is its exit code and the text what it said."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def start(paths: Paths, arguments: Sequence[str]) -> RunningDaemon:
    """Start a daemon that outlives this process, and wait until it listens.

    Raises:
        HomeInUseError: one runs already.
        StartFailedError: it ended at once.
    """
    if (running := find_running(paths)) is not None:
        raise home_in_use(paths, running)
    make_directory(paths.logs)
    output = paths.logs / _OUTPUT
    os.close(os.open(output, _NEW_FILE, 0o600))  # what is wrong with it is told here, not by the spawned process
    pid = _spawn([sys.executable, "-m", "amplifierd", *arguments], output)
    deadline = time.monotonic() + _START_PATIENCE_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            said = output.read_text(encoding="utf-8", errors="replace").strip()
            code = os.waitstatus_to_exitcode(status)
            raise StartFailedError(said or f"it ended with code {code}", code)
        if (running := find_running(paths)) is not None and running.process.pid == pid:
            return running
        time.sleep(_LOOK_S)
    os.kill(pid, signal.SIGTERM)
    raise StartFailedError(f"it did not listen within {_START_PATIENCE_S:.0f} s", ExitCode.FAILURE)


def _spawn(command: list[str], output: Path) -> int:
    """Start a process that outlives this one, in a session of its own; returns its id."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), _NEW_FILE, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)


def stop(paths: Paths) -> RunningDaemon | None:
    """Ask the daemon to stop, and wait until it has; returns it, None when none runs.

    Raises:
        SettingsError: it does not stop; the message says what to do.
    """
    running = find_running(paths)
    if running is None:
        return None
    with suppress(ProcessLookupError):  # it ended a moment ago
        os.kill(running.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_PATIENCE_S
    while running.process.is_alive():
        if time.monotonic() > deadline:
            raise SettingsError(
                f"{running.process} has not stopped within {_STOP_PATIENCE_S:.0f} s",
                hint=f"see {paths.logs / LOG_FILE}; a second `amplifierd stop` hurries it",
            )
        time.sleep(_LOOK_S)
    return running


def last_lines(file: Path, count: int) -> tuple[list[str], int]:
    """Return the last whole lines of a log, and where those that follow them begin."""
    content = file.read_bytes() if file.exists() else b""
    end = content.rfind(b"\n") + 1
    lines = content[:end].decode("utf-8", "replace").split("\n")[:-1]
    return lines[-count:] if count else [], end


def following(file: Path, position: int) -> Iterator[str]:
    """Yield the lines that a log has from a position on, and those that it gets, also when it is rotated."""
    inode = file.stat().st_ino if file.exists() else None
    while True:
        if file.exists():
            found = file.stat()
            if found.st_ino != inode or found.st_size < position:
                position, inode = 0, found.st_ino
            with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
                lines.seek(position)
                while (line := lines.readline()).endswith("\n"):
                    yield line.rstrip("\n")
                    position = lines.tell()
        time.sleep(_LOOK_S * 4)


# What the exit codes of `amplifierd` mean; `docs/daemon.md` has the same table.


class ExitCode(IntEnum):
    OK = 0
    FAILURE = 1
    CONFIGURATION = 2
    HOME_IN_USE = 3
    UNSAFE_BIND = 4
    PORT_IN_USE = 98


_CODES: dict[type[Exception], ExitCode] = {
    SettingsError: ExitCode.CONFIGURATION,
    FormatUnsupportedError: ExitCode.CONFIGURATION,
    HomeInUseError: ExitCode.HOME_IN_USE,
    UnsafeBindError: ExitCode.UNSAFE_BIND,
    PortInUseError: ExitCode.PORT_IN_USE,
}


def code_of(error: Exception) -> ExitCode:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), ExitCode.FAILURE)
