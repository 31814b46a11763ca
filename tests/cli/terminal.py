"""The command at a pseudo-terminal, with somebody who types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect
import warm_python
from pexpect.fdpexpect import fdspawn

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\x07")
_PATIENCE_S = 45
_ROWS = 30
_DELAY_S = pexpect.spawn(None).delaybeforesend  # people are not quicker than a program that shows its prompt
CTRL_C, CTRL_D, CTRL_Z, CTRL_X_CTRL_E = "\x03", "\x04", "\x1a", "\x18\x05"
ENTER, ALT_ENTER = "\r", "\x1b\r"
_LOCAL_MODES = 3


def in_terminal(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], columns: int) -> pexpect.spawn:
    """Start any program in a terminal."""
    program, *rest = command
    return pexpect.spawn(
        program,
        rest,
        cwd=str(cwd),
        env=dict(environment),
        encoding="utf-8",
        timeout=_PATIENCE_S,
        dimensions=(_ROWS, columns),
    )


def in_warm_terminal(
    command: Sequence[str], keeper: warm_python.Keeper, cwd: Path, environment: Mapping[str, str], columns: int
) -> WarmTerminal:
    """Have a keeper start a program of Python in a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = warm_python.Popen(command, cwd=cwd, env=environment, keeper=keeper, **streams)
    os.close(theirs)
    return WarmTerminal(process, ours)


class WarmTerminal(fdspawn):  # type: ignore[misc] # the package has no types
    """The terminal of a process that a keeper started."""

    def __init__(self, process: warm_python.Popen, terminal: int) -> None:
        super().__init__(terminal, encoding="utf-8", timeout=_PATIENCE_S)
        self.process = process
        self.exitstatus: int | None = None

    def send(self, text: str) -> int:
        time.sleep(_DELAY_S)
        sent: int = super().send(text)
        return sent

    def kill(self, sig: int) -> None:
        self.process.send_signal(sig)

    def setwinsize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.child_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        super().close()
        code = self.process.wait(_PATIENCE_S)
        self.exitstatus = code if code >= 0 else None


class Terminal:
    """A terminal of 80 columns that runs the command; `read` is everything that was shown so far, without codes."""

    def __init__(self, amplifier: Any, *arguments: str, columns: int = 80) -> None:
        environment = {**amplifier.environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONUNBUFFERED": "1"}
        environment.pop("COLUMNS", None)
        self._process = amplifier.in_terminal(arguments, environment, columns)
        self._shown: list[str] = []

    def expect(self, text: str) -> str:
        """Wait until a text is shown, and return what was shown up to it."""
        self.expect_any(text)
        return _CODES.sub("", self._shown[-1])

    def expect_any(self, *texts: str) -> str:
        """Wait until one of some texts is shown, and return which."""
        try:
            found = self._process.expect_exact([*texts])
        except pexpect.EOF:
            self._process.close()
            raise AssertionError(f"it ended, and showed at last: {_CODES.sub('', self._process.before)}") from None
        self._shown.append(f"{self._process.before}{self._process.after}")
        return texts[found]

    def next_piece(self) -> str:
        """Return what is shown next, with codes; empty when nothing comes for a moment."""
        try:
            piece: str = self._process.read_nonblocking(4096, timeout=0.2)
        except pexpect.TIMEOUT:
            return ""
        return piece

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        self._process.send(f"{text}\r")

    def press(self, keys: str) -> None:
        self._process.send(keys)

    def resize(self, columns: int) -> None:
        self._process.setwinsize(_ROWS, columns)

    def expect_modes(self, modes: int) -> None:
        """Wait until the terminal does with keys what `ICANON` and its like mean."""
        deadline = time.monotonic() + _PATIENCE_S
        while termios.tcgetattr(self._process.child_fd)[_LOCAL_MODES] & modes != modes:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        self._process.kill(number)

    def kill(self) -> str:
        """End the command as a crash does, and return what it had shown since the last text that was waited for."""
        self._process.kill(signal.SIGKILL)
        self._process.expect(pexpect.EOF)
        self._shown.append(self._process.before)
        self._process.close()
        return _CODES.sub("", self._process.before)

    def end(self) -> int:
        """Wait for the command's end and return its exit code."""
        self._process.expect(pexpect.EOF)
        self._shown.append(self._process.before)
        self._process.close()
        return int(self._process.exitstatus if self._process.exitstatus is not None else -1)

    @property
    def read(self) -> str:
        return _CODES.sub("", "".join(self._shown))
