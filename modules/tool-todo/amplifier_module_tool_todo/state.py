"""Where the list is kept: on the coordinator, where reminders look for it."""

import copy
import logging
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_kit.mounting import offer_capability

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
