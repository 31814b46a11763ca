"""A tool call in a few lines: what it is about, what came of it, and the change it makes to a file."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from amplifier_system.visible import visible, visible_line

from .render import counted, shortened, styled

_TELLING = ("command", "file_path", "pattern", "query", "path", "url", "agent", "instruction", "name", "action")
_COUNTS = {"count": ("found", "found"), "total_lines": ("line", "lines"), "total_matches": ("match", "matches")}
_WIDE = 60
_MOST_DIFF_LINES = 12


def called(name: str, arguments: Any) -> str:
    """Return a call in one line: the tool, and the argument that tells most."""
    return f"{visible_line(name)} {_telling(arguments)}".rstrip()


def outcome(data: Mapping[str, Any]) -> str:
    """Return what came of a call in one line, empty when it is nothing to speak of."""
    result = data.get("result")
    result = result if isinstance(result, Mapping) else {}
    if not data.get("success", True):
        error = result.get("error")
        text = error.get("message") if isinstance(error, Mapping) else error
        return shortened(str(text or data.get("content") or "it failed"), _WIDE * 2)
    return _summed_up(result.get("output"))


def diff_lines(arguments: Any) -> Iterator[str]:
    """Yield the lines that an edit takes out and puts in, in colour where the terminal has it."""
    if not isinstance(arguments, Mapping):
        return
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return
    lines = [*difflib.unified_diff(visible(old).splitlines(), visible(new).splitlines(), lineterm="", n=1)][3:]
    for line in lines[:_MOST_DIFF_LINES]:
        yield styled(line, "green" if line.startswith("+") else "red" if line.startswith("-") else "dim")
    if len(lines) > _MOST_DIFF_LINES:
        yield styled(f"… {len(lines) - _MOST_DIFF_LINES} more lines", "dim")


def _telling(arguments: Any) -> str:
    if not isinstance(arguments, Mapping):
        return ""
    value = next((arguments[key] for key in _TELLING if arguments.get(key)), None)
    if value is None:
        value = next((each for each in arguments.values() if isinstance(each, str) and each), arguments or "")
    return shortened(value if isinstance(value, str) else json.dumps(value, default=str), _WIDE)


def _summed_up(output: Any) -> str:
    if isinstance(output, Mapping):
        numbers = [counted(output[key], *words) for key, words in _COUNTS.items() if key in output]
        if numbers or "exit_code" in output:
            return ", ".join([*numbers, *([f"exit code {output['exit_code']}"] if "exit_code" in output else [])])
        output = next((each for each in output.values() if isinstance(each, str)), "")
    if not isinstance(output, str) or not output.strip():
        return ""
    lines = visible(output).strip().splitlines()
    return shortened(lines[0], _WIDE) if len(lines) == 1 else f"{len(lines)} lines"
