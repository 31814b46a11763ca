"""The terminal of a chat: what is typed at any time is for the next prompt, and the terminal is given back at the end.

Left to itself, a terminal makes lines of what is typed between two prompts: it shows it, and keeps Ctrl-D.
"""

from __future__ import annotations

import os
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any

from prompt_toolkit.input.vt100 import Vt100Input

_NOT_BY_LINES = termios.ICANON | termios.ECHO | termios.IEXTEN
_NOT_CHANGED = termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
_ENDING = (signal.SIGTERM, signal.SIGHUP)

Attributes = list[Any]


class ChatTerminal(Vt100Input):
    """The keys of a terminal."""

    _is_lent = False

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Make lines of what is typed, for a program that the terminal is lent to; text above the prompt needs none."""
        return super().cooked_mode() if self._is_lent else nullcontext()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the terminal to another program in this block."""
        self._is_lent = True
        try:
            yield
        finally:
            self._is_lent = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every key that is typed in this block for the next prompt; Ctrl-C between prompts ends the chat.

        The terminal is given back after the block, when the process is stopped, and when it is asked to end.
        """
        before = termios.tcgetattr(self.fileno())

        def end(number: int, frame: FrameType | None) -> None:
            self._set(before)
            _raise_unhandled(number)

        def stop(number: int, frame: FrameType | None) -> None:
            held = termios.tcgetattr(self.fileno())
            self._set(before)
            _raise_unhandled(number)
            signal.signal(number, stop)
            self._set(held)

        handlers = {signal.SIGTSTP: stop, **dict.fromkeys(_ENDING, end)}
        ours = {number: handler for number, handler in handlers.items() if signal.getsignal(number) is signal.SIG_DFL}
        for number, handler in ours.items():
            signal.signal(number, handler)
        self._set(_by_keys(before))
        try:
            yield
        finally:
            self._set(before)
            for number in ours:
                signal.signal(number, signal.SIG_DFL)

    def _set(self, attributes: Attributes) -> None:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self.fileno(), termios.TCSANOW, attributes)


def _by_keys(attributes: Attributes) -> Attributes:
    """Return the attributes of a terminal whose keys arrive one by one, and are not shown."""
    changed = [*attributes]
    changed[tty.LFLAG] &= ~_NOT_BY_LINES
    changed[tty.IFLAG] &= ~_NOT_CHANGED
    changed[tty.CC] = [*attributes[tty.CC]]
    changed[tty.CC][termios.VMIN], changed[tty.CC][termios.VTIME] = 1, 0
    return changed


def _raise_unhandled(number: int) -> None:
    """Do to this process what a signal does that it does not handle."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
