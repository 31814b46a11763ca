"""The hook that reminds the model of its list."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from amplifier_core import HookResult
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING, injected, read_role, reminder
from amplifier_kit.mounting import find_capability, find_mounted

MODULE_ID = "hooks-todo-reminder"
TOOL = "todo"

_SIGNS = {"completed": "✓", "in_progress": "→"}
_OPEN = "☐"
_CALLS_BETWEEN_NUDGES = 10
_MANY_CALLS = 5

_NUDGE = (
    "The todo tool was not used for a while. If the list below is behind your work, update it; if this became a task "
    "of several steps, keep a list of them. Do not mention this to the user."
)
_BARE_NUDGE = (
    "This became a task of several steps and there is no todo list. If it helps to keep track, make one with the todo "
    "tool. Do not mention this to the user."
)


class TodoReminderHook:
    """Shows the list before each request; nothing where there is nothing to say, and in sessions without the tool.

    The nudge stands before the list at most once in ten tool calls, when the tool was not among the last ones and the
    list has open steps, or there is none after more than five calls.
    """

    def __init__(self, coordinator: Any, config: dict[str, Any] | None = None) -> None:
        self._coordinator = coordinator
        read = ModuleConfig(MODULE_ID, config)
        self.role = read_role(read)
        self.priority = read.integer("priority", 10)
        self.enabled_events = read.strings("enabled_events", None)
        threshold = read.integer("recent_tool_threshold", 3, minimum=0)
        read.warn_unknown()
        self._recent: deque[str] = deque(maxlen=threshold)
        self._calls = 0
        self._nudged_at: int | None = None

    async def note_tool(self, event: str, data: dict[str, Any]) -> HookResult:
        """Take note of which tool was used."""
        name = data.get("tool_name") if isinstance(data, Mapping) else None
        if isinstance(name, str):
            self._recent.append(name)
            self._calls += 1
        return NOTHING

    async def remind(self, event: str, data: dict[str, Any]) -> HookResult:
        """Show the model its list."""
        if TOOL not in (find_mounted(self._coordinator, "tools") or ()):
            return NOTHING
        todos = self._todos()
        parts = [*self._nudge(todos), "\n".join(map(_line, todos))]
        body = "\n\n".join(part for part in parts if part)
        if not body:
            return NOTHING
        return injected(reminder(MODULE_ID, body), self.role, to_last_tool_result=True)

    def _todos(self) -> list[Mapping[str, Any]]:
        shared = getattr(self._coordinator, "todo_state", None)
        listed = shared if isinstance(shared, list) else find_capability(self._coordinator, "todo.state")
        return [todo for todo in listed if isinstance(todo, Mapping)] if isinstance(listed, list) else []

    def _nudge(self, todos: list[Mapping[str, Any]]) -> list[str]:
        has_open = any(todo.get("status") != "completed" for todo in todos)
        is_due = self._nudged_at is None or self._calls - self._nudged_at >= _CALLS_BETWEEN_NUDGES
        is_forgotten = bool(self._recent) and len(self._recent) == self._recent.maxlen and TOOL not in self._recent
        if not (is_due and is_forgotten and (has_open or (not todos and self._calls > _MANY_CALLS))):
            return []
        self._nudged_at = self._calls
        return [_NUDGE if todos else _BARE_NUDGE]


def _line(todo: Mapping[str, Any]) -> str:
    status = str(todo.get("status"))
    text = todo.get("activeForm") if status == "in_progress" else None
    return f"{_SIGNS.get(status, _OPEN)} {text or todo.get('content', '')}"
