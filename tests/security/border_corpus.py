"""What a terminal or a browser would obey, or not show: the samples that every surface is fed with."""

from __future__ import annotations

import unicodedata

OBEYED = {
    "erase a line and begin it anew": "\x1b[2K\x1b[1G",
    "scroll region": "\x1b[7;9r",
    "colours": "\x1b[5;35;46m",
    "title": "\x1b]0;owned\x07",
    "title without an end": "\x1b]2;owned",
    "link": "\x1b]8;;http://owned.example\x1b\\",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "clipboard without an end": "\x1b]52;c;b3duZWQ=",
    "notification": "\x1b]777;notify;owned;owned\x1b\\",
    "device control": "\x1bP$qm\x1b\\",
    "application program command": "\x1b_owned\x1b\\",
    "privacy message without an end": "\x1b^owned",
    "full reset": "\x1bc",
    "CSI as one character": "\x9b2J",
    "OSC as one character": "\x9d0;owned\x9c",
    "next line": "\x85",
    "carriage return": "\r",
    "backspaces": "\x08\x08",
    "delete": "\x7f",
    "bell": "\x07",
    "shift out": "\x0e",
    "vertical tab and form feed": "\x0b\x0c",
    "separators": "\x1c\x1f",
}
UNSEEN = {
    "override of direction": "\u202e\u202d",
    "embedding": "\u202a\u202b\u202c",
    "isolates": "\u2066\u2067\u2068\u2069",
    "marks of direction": "\u200e\u200f\u061c",
    "zero width": "\u200b\u2060\u2063",
    "soft hyphen": "\u00ad",
    "byte order mark": "\ufeff",
    "tags": "\U000e0041\U000e007f",
    "variation selectors": "\ufe00\U000e0100",
    "fillers": "\u3164\u115f\uffa0\u2800",
    "joiner of graphemes": "\u034f",
    "spaces": "\u00a0\u2003\u202f\u3000",
    "separators of lines": "\u2028\u2029",
    "private use": "\ue000\U000f0000",
    "not a character": "\ufffe",
}
LONE = "\ud83d"
"""Half of a character: it is in JSON, and in names of files that are not UTF-8."""

SAMPLES = {**OBEYED, **UNSEEN}
LINES = [f"{number:02}<{sample}>" for number, sample in enumerate(SAMPLES.values())]
"""Each sample between marks, so that a screen shows where it was."""

_OURS = "\n\t\u200c\u200d\ufe0f"


def hidden(text: str) -> set[str]:
    """Return the characters of a text that are not seen, or obeyed, but for those that a surface may keep."""
    unseen = {character for sample in UNSEEN.values() for character in sample}
    return {
        character
        for character in text
        if character not in _OURS
        and character != " "
        and (
            unicodedata.category(character)[0] == "C"
            or unicodedata.category(character)[0] == "Z"
            or character in unseen
        )
    }
