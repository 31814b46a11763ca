"""Long work in one line of the terminal: what is being fetched, installed or compiled."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from amplifier_system.screen import screen

from .render import ERASE_LINE, shortened

if TYPE_CHECKING:
    from amplifier_foundation.sources import ProgressEvent

_MIB = 1024 * 1024
_WORDS = {"waiting": "waiting for", "asking": "asking", "fetching": "getting"}
_WORK = {"profile": "compiling profile", "packages": "installing packages for"}
_BAR = 20


class ProgressLine:
    """A line on stderr that changes, and is gone when the work is done. It is shown only on a terminal."""

    def __init__(self) -> None:
        self._is_shown = False
        self._is_wanted = sys.stderr.isatty()

    def __call__(self, event: ProgressEvent) -> None:
        word = _WORDS.get(event.phase)
        if not self._is_wanted:
            return
        if word is None:
            self.clear()
            return
        doing = _WORK.get(event.what, f"{word} {event.what}") if event.phase == "fetching" else f"{word} {event.what}"
        text = f"{_bar(event)}{doing} {event.ref}{_amount(event)}"
        self._write(shortened(text, shutil.get_terminal_size().columns - 1))

    def clear(self) -> None:
        if self._is_shown:
            self._write("")
            self._is_shown = False

    def _write(self, text: str) -> None:
        screen(sys.stderr).write(f"{ERASE_LINE}{text}")
        sys.stderr.flush()
        self._is_shown = bool(text)


def _bar(event: ProgressEvent) -> str:
    if not event.total_bytes or event.bytes is None:
        return ""
    done = min(event.bytes * _BAR // event.total_bytes, _BAR)
    return f"[{'#' * done}{'.' * (_BAR - done)}] "


def _amount(event: ProgressEvent) -> str:
    if event.bytes is None:
        return ""
    done = f"{event.bytes / _MIB:.1f}"
    return f" ({done} of {event.total_bytes / _MIB:.1f} MiB)" if event.total_bytes else f" ({done} MiB)"
