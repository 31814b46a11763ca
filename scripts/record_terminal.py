"""Record `make run` on a terminal as `docs/first-run.svg`; with --check only say whether the recording is old.

The program runs on a pseudo-terminal, so the picture shows what a person sees. Its lines appear one after another.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "first-run.svg"
TYPED = "$ make run"
COLUMNS, ROWS = 116, 50

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n\t\x07])|([^\x1b\r\n\t\x07]+)")
_VARYING = {
    re.compile(r"\S+/first-run-\w+/"): "/tmp/first-run/",
    re.compile(r"\b\d+\.\d s\b"): "0.1 s",
    re.compile(r"\b(session) [0-9a-f]{8}\b"): r"\1 4f1c09d2",
}
_BUILD = re.compile(r"\b[0-9a-f]{12}\b")  # changes with every module

_WIDTH, _HEIGHT, _MARGIN = 8.43, 19, 18
_SECONDS = 0.25
_COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea"}
_STYLES = {"1": "font-weight:bold", "2": "opacity:.6", "3": "font-style:italic", "4": "text-decoration:underline"}

Line = list[tuple[str, str]]
"""The pieces of a line, each with its style."""


def recorded() -> list[Line]:
    """Run the program on a terminal, and return the lines that are on it at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AMPLIFIER", "NO_COLOR"))}
    environment = {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    environment["PATH"] = os.pathsep.join(
        part for part in kept.get("PATH", "").split(os.pathsep) if Path(part) != Path(sys.executable).parent
    )
    command = [sys.executable, str(ROOT / "examples/first_run.py")]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    if process.returncode:
        sys.exit(f"the program failed:\n{shown.decode()}")
    return screen(shown.decode())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that nothing writes to a terminal any more
        return b""


def screen(text: str) -> list[Line]:
    """Return the lines that a text with the usual codes leaves on a terminal."""
    lines: list[Line] = [[]]
    style = ""
    for found in _TOKEN.finditer(text):
        numbers, code, control, words = found.groups()
        if words:
            lines[-1].append((words, style))
        elif control == "\n":
            lines.append([])
        elif control == "\t":
            lines[-1].append((" " * (8 - sum(len(part) for part, _ in lines[-1]) % 8), style))
        elif code == "K":
            lines[-1].clear()
        elif code == "m":
            style = "" if numbers in ("", "0") else ";".join(filter(None, (style, numbers)))
    while lines and not lines[-1]:
        lines.pop()
    return [[(_constant(part), style) for part, style in line] for line in lines]


def drawn(lines: list[Line]) -> str:
    """Return a picture of the lines, which appear one after another."""
    width, height = round(COLUMNS * _WIDTH + 2 * _MARGIN), (len(lines) + 1) * _HEIGHT + 2 * _MARGIN
    head = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>make run: an agent lists files, reads one and searches them</title>
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e6edf3; white-space: pre; }}
text {{ animation: appear 1ms both; }}
@keyframes appear {{ from {{ visibility: hidden; }} to {{ visibility: visible; }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none; }} }}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
"""
    shown: list[Line] = [[(TYPED, "1")], *lines]
    return head + "".join(_row(number, line) for number, line in enumerate(shown) if line) + "</svg>\n"


def _row(number: int, line: Line) -> str:
    spans = "".join(f"<tspan{_attribute(style)}>{escape(part)}</tspan>" for part, style in line)
    place = f'x="{_MARGIN}" y="{_MARGIN + (number + 1) * _HEIGHT - 5}"'
    return f'<text {place} xml:space="preserve" style="animation-delay:{number * _SECONDS:g}s">{spans}</text>\n'


def _attribute(style: str) -> str:
    codes = style.split(";")
    rules = [f"fill:{_COLOURS[code]}" for code in codes if code in _COLOURS]
    rules += [_STYLES[code] for code in codes if code in _STYLES]
    return f' style="{";".join(rules)}"' if rules else ""


def _constant(text: str) -> str:
    for pattern, constant in _VARYING.items():
        text = pattern.sub(constant, text)
    return text


def essentials(picture: str) -> list[str]:
    """Return the text of a picture, line by line, without what changes with every change of a module."""
    rows = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return [_BUILD.sub("…", "".join(row.itertext())).rstrip() for row in rows]


if __name__ == "__main__":
    new = drawn(recorded())
    if "--check" not in sys.argv:
        PICTURE.write_text(new, encoding="utf-8")
    elif not PICTURE.exists() or essentials(PICTURE.read_text(encoding="utf-8")) != essentials(new):
        sys.exit(f"{PICTURE} is old: run make pages")
