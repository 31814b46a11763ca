"""Regular expressions that a person wrote: some never finish on some texts, so a process searches that can be ended."""

import json
import logging
import re
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from amplifier_system.processes import spawn

from .patterns import Span

logger = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("pattern_child.py")
_PATIENCE_MS = 10_000  # of wall time, beyond which it is not the text that is slow
# Characters, classes and fixed repetitions: the time these take is in proportion to the text.
_PLAIN = re.compile(r"(?:[^\\\[\](){}*+?|]|\\[^0-9]|\[\^?\]?(?:[^\\\]]|\\.)*\]|\{\d{1,2}\})*")


def is_plain(pattern: str) -> bool:
    """True if a pattern takes no long time, whatever the text."""
    return _PLAIN.fullmatch(pattern) is not None


class PatternProcess:
    """Searches with patterns, all of them valid, in a process that starts with the first search.

    What a pattern takes too long for counts as found as a whole. A process that is ended is started again when it is
    needed.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = json.dumps(list(patterns))
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()
        self._at_end: weakref.finalize[..., PatternProcess] | None = None

    def find(self, number: int, text: str) -> list[Span]:
        """Return where the pattern with this number matches.

        Raises:
            OSError, EOFError: the process cannot be started, or ends without an answer.
        """
        with self._one_at_a_time:
            try:
                answer = self._answer(number, text)
            except (BrokenPipeError, EOFError):  # it was ended from outside
                answer = self._answer(number, text)
        if answer is None:
            logger.warning("a pattern took too long for a text of %d characters, which is masked whole", len(text))
            return [(0, len(text))]
        return [(start, end) for start, end in answer]

    def end(self) -> None:
        """End the process, if there is one."""
        with self._one_at_a_time:
            self._end()

    def _answer(self, number: int, text: str) -> list[Span] | None:
        process = self._process or self._start()
        stdin, stdout = cast("tuple[IO[bytes], IO[bytes]]", (process.stdin, process.stdout))
        line = b""
        try:
            stdin.write(json.dumps([number, text]).encode() + b"\n")
            stdin.flush()
            answering = select.poll()
            answering.register(stdout, select.POLLIN)
            if not answering.poll(_PATIENCE_MS):
                return None
            line = stdout.readline()
        finally:
            if not line:  # its next answer would be one to this question
                self._end()
        if not line:
            raise EOFError("the process that searches ended without an answer")
        found: list[Span] | None = json.loads(line)
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", str(_PROGRAM), self._patterns]
        self._process = spawn(command, environment={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._at_end = weakref.finalize(self, _kill, self._process)
        return self._process

    def _end(self) -> None:
        self._process = None
        if self._at_end is not None:
            self._at_end()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
