"""The command at a pseudo-terminal, with somebody who types."""

import re
import signal
from typing import Any

import pexpect

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\x07")
CTRL_C, CTRL_D, ALT_ENTER = "\x03", "\x04", "\x1b\r"


class Terminal:
    """A terminal of 80 columns that runs the command; `read` is everything that was shown so far, without codes."""

    def __init__(self, amplifier: Any, *arguments: str, columns: int = 80) -> None:
        command, *rest = amplifier.command(arguments)
        environment = {**amplifier.environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONUNBUFFERED": "1"}
        environment.pop("COLUMNS", None)
        self._process = pexpect.spawn(
            command,
            rest,
            cwd=str(amplifier.work),
            env=environment,
            encoding="utf-8",
            timeout=45,
            dimensions=(30, columns),
        )
        self._shown: list[str] = []

    def expect(self, text: str) -> str:
        """Wait until a text is shown, and return what was shown up to it."""
        self.expect_any(text)
        return _CODES.sub("", self._shown[-1])

    def expect_any(self, *texts: str) -> str:
        """Wait until one of some texts is shown, and return which."""
        found = self._process.expect_exact([*texts])
        self._shown.append(f"{self._process.before}{self._process.after}")
        return texts[found]

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        self._process.send(f"{text}\r")

    def press(self, keys: str) -> None:
        self._process.send(keys)

    def resize(self, columns: int) -> None:
        self._process.setwinsize(30, columns)

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
