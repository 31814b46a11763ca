"""Calling a person back to the terminal: with its bell, or on the desktop."""

from __future__ import annotations

import os
import shutil
from typing import Literal, TextIO

from amplifier_system.screen import screen, sequence
from amplifier_system.visible import visible_line

How = Literal["bell", "desktop", "none"]

_TITLE = "amplifier"
_SPEAK_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "WarpTerminal")


def notify(text: str, how: How, stream: TextIO) -> None:
    """Say something to a person who may be looking elsewhere; `stream` is the terminal.

    On the desktop of this machine it is `notify-send`. Elsewhere, over ssh for instance, the terminal is asked to show
    it; one that cannot ignores that, so the bell is rung as well.
    """
    if how == "none":
        return
    if how == "desktop" and not _sent(text):
        plain = visible_line(text).replace(";", ",")
        code = f"9;{plain}" if os.environ.get("TERM_PROGRAM") in _SPEAK_OSC_9 else f"777;notify;{_TITLE};{plain}"
        screen(stream).write(sequence(f"\x1b]{code}\x1b\\"))
    screen(stream).write(sequence("\a"))
    stream.flush()


def _sent(text: str) -> bool:
    is_here = not os.environ.get("SSH_CONNECTION")
    has_desktop = bool(os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY"))
    program = shutil.which("notify-send") if is_here and has_desktop else None
    if program is None:
        return False
    import subprocess  # most commands start none

    nowhere = subprocess.DEVNULL
    subprocess.Popen(
        [program, "--app-name", _TITLE, _TITLE, visible_line(text)], stdin=nowhere, stdout=nowhere, stderr=nowhere
    )
    return True
