"""The tool `todo`."""

import copy
import logging
import re
from collections import Counter
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.boundary import Boundary
from amplifier_core.utils.tool_messages import calls_in, results_in
from amplifier_kit.mounting import find_mounted, offer_capability
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.runs import AnsweringTool, announce

logger = logging.getLogger(__name__)

Todos = list[dict[str, Any]]

CAPABILITY = "todo.state"


class TodoState:
    """The list of one session: the attribute `todo_state` of the coordinator and the capability `todo.state`.

    Every list that goes in or out is a copy of its own. A list that other code puts on the coordinator counts.
    """

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._todos: Todos = []
        self.replace([])

    @property
    def todos(self) -> Todos:
        shared = getattr(self._coordinator, "todo_state", None)
        return copy.deepcopy(shared if isinstance(shared, list) else self._todos)

    def replace(self, todos: Todos) -> None:
        self._todos = copy.deepcopy(todos)
        if self._coordinator is None:
            return
        message = "the coordinator takes no attribute; %s holds the list: %s"
        with Boundary(logger, message, CAPABILITY, level=logging.DEBUG):
            self._coordinator.todo_state = copy.deepcopy(todos)
        offer_capability(self._coordinator, CAPABILITY, copy.deepcopy(todos))


UPDATED = "todo:updated"

_ACTIONS = ("create", "update", "list")
_STATUSES = ("pending", "in_progress", "completed")
_FIELDS = ("content", "status", "activeForm")
_MAX_ITEMS = 200
_MAX_CHARACTERS = 2000


class TodoTool(AnsweringTool):
    """Keeps one session's list; create and update replace it as a whole, and only by one that is valid."""

    name = "todo"
    effects: frozenset[str] = frozenset()  # it changes nothing but the list of the session
    retry = "safe"  # the list is replaced as a whole, and lost with the process
    description = (
        "Keep a list of the steps of a larger task: `create` it when you have a plan, `update` it (always with the"
        " whole list) as you go on, `list` it to see where you are. Exactly one step should be in_progress. Each step"
        " has `content` (what to do: 'Run tests'), `activeForm` (what is being done: 'Running tests') and `status`."
        f" At most {_MAX_ITEMS} steps of {_MAX_CHARACTERS} characters. Not for tasks of one or two steps."
    )

    def __init__(self, coordinator: Any = None) -> None:
        self._coordinator = coordinator
        self._state = TodoState(coordinator)
        self._may_restore = bool(getattr(getattr(coordinator, "session", None), "is_resumed", False))

    @property
    def input_schema(self) -> dict[str, Any]:
        item = {
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "What is to be done, as an instruction."},
                "activeForm": {"type": "string", "description": "The same while it is being done."},
                "status": {"type": "string", "enum": list(_STATUSES)},
            },
            "required": ["content", "status", "activeForm"],
        }
        return {
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": list(_ACTIONS),
                    "description": "create and update replace the list, list shows it.",
                },
                "todos": {"type": "array", "items": item, "description": "The whole list, for create and update."},
            },
            "required": ["action"],
        }

    async def answer(self, given: Any) -> ToolResult:
        """Carry out an action; a list that is not valid changes nothing."""
        action = given.get("action") if isinstance(given, dict) else None
        logger.debug("todo: %s", action)
        if action == "list":
            await self._restore()
            todos = self._state.todos
            return ToolResult(output={"status": "listed", "count": len(todos), "todos": todos})
        if action not in ("create", "update"):
            raise ToolFailure(f"Unknown action: {action}. Valid actions: {', '.join(_ACTIONS)}", "invalid_input")
        todos = checked(given.get("todos"))
        self._may_restore = False
        self._state.replace(todos)
        counts = _counts(todos)
        await announce(self._coordinator, UPDATED, {"action": action, "count": len(todos), **counts})
        if action == "create":
            return ToolResult(output={"status": "created", "count": len(todos), "todos": self._state.todos})
        output: dict[str, Any] = {"status": "updated", "count": len(todos), **counts}
        if counts["in_progress"] > 1:
            output["warning"] = f"{counts['in_progress']} steps are in_progress; there should be one"
        return ToolResult(output=output)

    async def _restore(self) -> None:
        """Take up the list of a resumed session, once."""
        if not self._may_restore or self._state.todos:
            return
        self._may_restore = False
        for todos in await last_todos(self._coordinator, self.name):
            try:
                self._state.replace(checked(todos))
            except ToolFailure:
                continue
            return


def checked(todos: Any) -> Todos:
    """Return the list if it is valid; raises `ToolFailure`."""
    if not isinstance(todos, list):
        raise ToolFailure("todos must be a list of objects with content, status and activeForm", "invalid_input")
    if len(todos) > _MAX_ITEMS:
        raise ToolFailure(f"todos has {len(todos)} items, at most {_MAX_ITEMS} are possible", "invalid_input")
    for index, todo in enumerate(todos):
        if problem := _problem(todo):
            raise ToolFailure(f"Todo {index} {problem}", "invalid_input")
    return todos


def _problem(todo: Any) -> str:
    """Return what is wrong with an item, nothing when it is valid."""
    if not isinstance(todo, dict) or any(name not in todo for name in _FIELDS):
        return f"missing required fields ({', '.join(_FIELDS)})"
    if todo["status"] not in _STATUSES:
        return f"has invalid status: {todo['status']}"
    for name in ("content", "activeForm"):
        text = todo[name]
        if not isinstance(text, str) or (name == "content" and not text.strip()):
            return f"needs text as its {name}"
        if len(text) > _MAX_CHARACTERS:
            return f"has a {name} of {len(text)} characters, at most {_MAX_CHARACTERS} are possible"
    return ""


def _counts(todos: Todos) -> dict[str, int]:
    found = Counter(todo["status"] for todo in todos)
    return {status: found[status] for status in _STATUSES}


_SUCCESS = re.compile(r"""(["'])status\1: ?(["'])(?:created|updated)\2""")


async def last_todos(coordinator: Any, tool_name: str) -> list[Any]:
    """Return the lists of the successful calls in the session's messages, the last one first."""
    context = find_mounted(coordinator, "context")
    messages: list[dict[str, Any]] = []
    with Boundary(logger, "the session has no messages to restore a list from: %s", level=logging.DEBUG):
        messages = [message for message in await context.get_messages() if isinstance(message, dict)]
    succeeded: set[str] = set()
    found: list[Any] = []
    for message in reversed(messages):
        if (results := results_in(message)) is not None:
            succeeded.update(result.call_id for result in results if _is_success(result.output))
            continue
        for call in reversed(calls_in(message)):
            if call.name == tool_name and call.id in succeeded and call.arguments.get("action") in ("create", "update"):
                found.append(call.arguments.get("todos"))
    return found


def _is_success(output: Any) -> bool:
    """True if this is what the tool answers when it has replaced the list, also cut off or with more behind it."""
    if isinstance(output, list):
        return any(_is_success(block.get("text")) for block in output if isinstance(block, dict))
    return isinstance(output, str | dict) and _SUCCESS.search(str(output)) is not None
