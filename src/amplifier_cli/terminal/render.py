"""Tables, fields and JSON on stdout; nothing here needs a library, so that listing stays quick."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from amplifier_system.visible import screen, sequence, visible, visible_json, visible_line

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
ERASE_LINE = sequence("\r\x1b[2K")
"""Takes the line of a terminal away."""

_PLAIN = sequence("\x1b[0m")
_GAP = "  "
_NARROW = 12


def has_colour(stream: TextIO) -> bool:
    """True if a stream is a terminal that wants colours: `NO_COLOR` and `TERM=dumb` do not."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return a text in a style, `bold` or a colour, where the stream shows it."""
    if not text or not has_colour(stream or sys.stdout):
        return text
    return sequence(f"\x1b[{_CODES[style]}m") + text + _PLAIN


def write(text: str = "", stream: TextIO | None = None) -> None:
    """Print a line for people: each character is visible, and only styles are obeyed."""
    screen(stream or sys.stdout).write(f"{text}\n")


def can_show(text: str) -> bool:
    """True if stdout has a text's characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON in which every character can be shown."""
    return visible_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def write_json(value: Any) -> None:
    """Print a value as JSON: in lines for people, in one for programs that read a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    write(json_text(value, indent=indent))


def write_data(value: Any) -> None:
    """Print a value as YAML, for people; texts of several lines keep them."""
    from amplifier_foundation.io.yaml import dump_yaml  # only what shows data needs it

    write(dump_yaml(value).rstrip("\n"))


def write_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "") -> None:
    """Print rows in columns. On a terminal the last column is cut where the line ends; in a pipe nothing is."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        write(empty)
        return
    widths = [max(map(_width, column)) for column in zip(headings, *cells, strict=True)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    write(styled(_line(headings, widths, room), "bold"))
    for row in cells:
        write(_line(row, widths, room))


def write_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one to a line; what has no value is left out."""
    shown = {name: _cell(value) for name, value in fields.items() if value not in (None, "", [], {}, ())}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        write(f"{styled(f'{name:<{width}}', 'dim')}{_GAP}{value}")


def columns(rows: Mapping[str, str]) -> list[str]:
    """Return lines of names and what they mean, in two columns that fit the terminal."""
    room = max(shutil.get_terminal_size().columns - 1, 3 * _NARROW)
    width = min(max(map(_width, rows), default=0), room // 3)
    lines = []
    for name, text in rows.items():
        first, *rest = textwrap.wrap(visible(text), room - width - 2 * len(_GAP)) or [""]
        lead = f"{_GAP}{styled(name, 'bold')}"
        if _width(name) > width:
            lines.append(lead)
            lead, name = _GAP, ""
        lines.append(f"{lead}{' ' * (width - _width(name))}{_GAP}{first}")
        lines += [" " * (width + 2 * len(_GAP)) + line for line in rest]
    return lines


def ago(moment: str | None) -> str:
    """Return how long ago a stored moment was: `3 min ago`."""
    if not moment:
        return ""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def money(amount: float | str | None) -> str:
    """Return an amount of dollars, which is text where it is exact; small ones keep their digits."""
    if amount is None:
        return ""
    amount = float(amount)
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4f}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number and what it counts: `1 warning`, `2 warnings`; `many` is for what takes more than an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def shortened(text: str, width: int) -> str:
    """Return a text as one line of at most some columns."""
    line = " ".join(visible(text).split())
    if _width(line) <= width:
        return line
    kept = ""
    for character in line:
        if _width(kept + character) >= width:
            break
        kept += character
    return f"{kept}…"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return visible_line(", ".join(map(str, value)))
    text = "" if value is None else visible(str(value))
    return " ".join(text.split()) if "\n" in text else visible_line(text)


def _line(cells: Sequence[str], widths: Sequence[int], room: int | None) -> str:
    *front, last = cells
    start = "".join(cell + " " * (width - _width(cell)) + _GAP for cell, width in zip(front, widths, strict=False))
    if room is not None:
        last = shortened(last, max(room - _width(start), _NARROW))
    return (start + last).rstrip()


def _width(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


_CALLS = ("tool_call", "tool_use", "tool_result", "thinking", "reasoning")


def message_text(content: Any) -> str:
    """Return the text of a message's content; an image stands as `[image]`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") not in _CALLS]
    return "\n".join(
        str(block.get("text") if block.get("type") == "text" else f"[{block.get('type')}]") for block in blocks
    )


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
