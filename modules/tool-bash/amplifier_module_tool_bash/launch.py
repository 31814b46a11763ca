"""How a command is started: the shell, its directory, its environment, and what is told about it."""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from amplifier_kit.tools.input import ToolFailure, os_failure
from amplifier_kit.tools.processes import ProcessTree, is_marker
from amplifier_kit.tools.runs import announce

from .settings import Settings

STARTED = "tool-bash:started"
FINISHED = "tool-bash:finished"

_USUAL_BASH = Path("/bin/bash")
_QUIET = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Shell:
    """The shell that runs commands, and what is to be said about it."""

    name: str
    arguments: tuple[str, ...]
    note: str = ""


def find_shell(usual: Path = _USUAL_BASH) -> Shell:
    """Return bash from its usual place, else from where it is found, else the plain shell of the system."""
    bash = str(usual) if usual.exists() else shutil.which("bash")
    if bash:
        return Shell("bash", (bash, "--norc", "--noprofile", "-c", "--"))
    return Shell("sh", (shutil.which("sh") or "/bin/sh", "-c", "--"), "bash is not installed; sh ran the command")


@dataclass(frozen=True, slots=True)
class Launch:
    """One command, ready to be started."""

    command: str
    shell: Shell
    cwd: Path
    environment: Mapping[str, str]

    async def start(self, stdout: int | IO[bytes], stderr: int) -> ProcessTree:
        """Start the command; raises `ToolFailure`."""
        try:
            return await ProcessTree.start(
                [*self.shell.arguments, self.command.encode()],
                environment=self.environment,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        except OSError as exc:
            raise os_failure(f"bash: the command could not be started: {exc.strerror}", exc) from exc


def prepare(command: str, shell: Shell, cwd: Path, settings: Settings) -> Launch:
    """Return the launch of a command; raises `ToolFailure` when its directory is not there."""
    try:
        is_there = cwd.is_dir()
    except OSError as exc:
        raise os_failure(f"bash: the working directory {str(cwd)!r} cannot be used: {exc.strerror}", exc) from exc
    if not is_there:
        raise ToolFailure(f"bash: the working directory {str(cwd)!r} does not exist", "not_found", retryable=False)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if is_marker(name) or not any(fnmatchcase(name, pattern) for pattern in settings.env_deny)
    }
    return Launch(command, shell, cwd, {**_QUIET, **inherited, **settings.env})


@dataclass(slots=True)
class Announcement:
    """Tells the session that a command was started and that it is over, each once."""

    coordinator: Any
    launch: Launch
    pid: int
    timeout_s: float | None
    is_background: bool = False
    _started_s: float = field(default_factory=time.monotonic)

    async def started(self) -> None:
        payload = {"cwd": str(self.launch.cwd), "timeout": self.timeout_s}
        await announce(self.coordinator, STARTED, self._common | payload)

    async def finished(self, returncode: int | None, **facts: Any) -> None:
        """Emit the end; `facts` are the byte counts and flags that differ from nothing."""
        nothing = {"stdout_bytes": 0, "stderr_bytes": 0, "truncated": False, "timed_out": False, "cancelled": False}
        duration_ms = round((time.monotonic() - self._started_s) * 1000)
        payload = {"returncode": returncode, "duration_ms": duration_ms}
        await announce(self.coordinator, FINISHED, self._common | payload | nothing | facts)

    @property
    def _common(self) -> dict[str, Any]:
        command = self.launch.command[:_SHOWN_CHARACTERS]
        return {"command": command, "pid": self.pid, "background": self.is_background}
