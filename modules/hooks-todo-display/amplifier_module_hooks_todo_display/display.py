"""The hook that shows the list, and the list as text."""

import json
import os
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import HookResult
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING
from amplifier_system.visible import visible_line

MODULE_ID = "hooks-todo-display"
TOOL = "todo"

_SHOWN = frozenset({"created", "updated", "listed"})
_SIGNS = {"completed": "✓", "in_progress": "▶"}
_STYLES = {"completed": "\x1b[2m", "in_progress": "\x1b[1m"}
_PLAIN = "\x1b[0m"

Todos = list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ListStyle:
    """How the list is drawn."""

    mode: str
    compact_threshold: int
    has_bar: bool
    bar_width: int
    max_width: int
    has_border: bool
    title: str

    def lines(self, todos: Todos) -> list[str]:
        """Return the list as lines, without colours, none wider than the list may be."""
        is_short = self.mode == "condensed" or (self.mode == "auto" and len(todos) > self.compact_threshold)
        shown = [todo for todo in todos if todo.get("status") == "in_progress"] if is_short else todos
        body = [*map(_line, shown), *([_progress(todos, self.bar_width)] if self.has_bar or is_short else [])]
        inner = max(self.max_width - (4 if self.has_border else 0), 8)
        body = [clipped(line, inner) for line in body]
        title = clipped(self.title, max(inner - 2, 1))
        if not self.has_border:
            return [title, *body]
        width = max([width_of(line) for line in body] + [width_of(title) + 2])
        top = f"┌ {title} {'─' * (width - width_of(title))}┐"
        sides = [f"│ {line}{' ' * (width - width_of(line))} │" for line in body]
        return [top, *sides, f"└{'─' * (width + 2)}┘"]


class TodoDisplayHooks:
    """Shows the list after each successful call of the tool, through the host's display where there is one."""

    def __init__(self, coordinator: Any, config: dict[str, Any] | None = None) -> None:
        self._coordinator = coordinator
        read = ModuleConfig(MODULE_ID, config)
        self.style = ListStyle(
            mode=read.choice("mode", "full", ("full", "condensed", "auto", "none")),
            compact_threshold=read.integer("compact_threshold", 7, minimum=0),
            has_bar=read.boolean("show_progress_bar", True),
            bar_width=read.integer("progress_bar_width", 24, minimum=1),
            max_width=read.integer("max_width", 60, minimum=10),
            has_border=read.boolean("show_border", True),
            title=read.text("title", "Todo"),
        )
        self.enabled_events = read.strings("enabled_events", None)
        read.warn_unknown()
        self._given: dict[str, Todos] = {}

    async def note_input(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep the list of a call, for the case that its result does not repeat it."""
        if isinstance(data, Mapping) and data.get("tool_name") == TOOL:
            given = data.get("tool_input")
            self._given[str(data.get("tool_call_id"))] = _todos_in(given) or []
        return NOTHING

    async def show_result(self, event: str, data: dict[str, Any]) -> HookResult:
        """Show the list that a successful call leaves."""
        if not isinstance(data, Mapping) or data.get("tool_name") != TOOL:
            return NOTHING
        given = self._given.pop(str(data.get("tool_call_id")), [])
        output = _output_of(data)
        if self.style.mode == "none" or output.get("status") not in _SHOWN:
            return NOTHING
        todos = _todos_in(output)
        todos = todos if todos is not None else _todos_in(data.get("tool_input")) or given
        if not todos:
            return NOTHING
        self._show([dict(todo) for todo in todos])
        return HookResult(action="modify", data={**data, "metadata": {**_metadata(data), "todo_displayed": True}})

    def _show(self, todos: list[dict[str, Any]]) -> None:
        display = getattr(self._coordinator, "display_system", None)
        if callable(show := getattr(display, "show", None)):
            show(kind="todo", data={"title": self.style.title, "mode": self.style.mode, "todos": todos})
        elif display is None and sys.stdout.isatty():
            sys.stdout.write(_coloured(self.style.lines(list(todos)), is_plain="NO_COLOR" in os.environ))
            sys.stdout.flush()


def _todos_in(value: Any) -> Todos | None:
    listed = value.get("todos") if isinstance(value, Mapping) else None
    return [todo for todo in listed if isinstance(todo, Mapping)] if isinstance(listed, list) else None


def _output_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a call put out, in whatever form the loop tells it."""
    result = data.get("result", data.get("tool_result"))
    result = getattr(result, "output", result)
    if isinstance(result, Mapping) and "output" in result:
        result = result["output"]
    if isinstance(result, str):
        try:
            result = json.loads(result)
        except ValueError:
            return {}
    return result if isinstance(result, Mapping) else {}


def _metadata(data: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = data.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _line(todo: Mapping[str, Any]) -> str:
    status = str(todo.get("status"))
    text = todo.get("activeForm") if status == "in_progress" else None
    return f"{_SIGNS.get(status, '○')} {visible_line(' '.join(str(text or todo.get('content', '')).split()))}"


def _progress(todos: Todos, width: int) -> str:
    done = sum(todo.get("status") == "completed" for todo in todos)
    filled = width * done // len(todos) if todos else 0
    return f"{'█' * filled}{'░' * (width - filled)} {done}/{len(todos)}"


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text
    )


def clipped(text: str, width: int) -> str:
    """Return a text that takes no more than so many columns."""
    if width_of(text) <= width:
        return text
    kept = ""
    for sign in text:
        if width_of(kept + sign) > width - 1:
            break
        kept += sign
    return f"{kept}…"


def _coloured(lines: list[str], *, is_plain: bool) -> str:
    if is_plain:
        return "".join(f"{line}\n" for line in lines)
    by_sign = {sign: _STYLES[status] for status, sign in _SIGNS.items()}
    styles = [next((style for sign, style in by_sign.items() if sign in line[:3]), "") for line in lines]
    return "".join(
        f"{style}{line}{_PLAIN}\n" if style else f"{line}\n" for style, line in zip(styles, lines, strict=True)
    )
