"""What schedulers share: the events in which an event-driven loop asks them, and the shape of their answers.

A scheduler is a hook. Before each tool call the loop announces what the model chose (`tool:selecting`): the scheduler
lets it pass, answers with another tool (`use_instead`), or denies it. Loops that ask for decisions
(`decision:tool_resolution`, `decision:agent_resolution`, `decision:context_resolution`) collect scored answers from
everyone and take the best.

Subclass `Scheduler`, say how you choose, and mount it with `register_on`. Nothing that goes wrong inside a scheduler
stops a turn: the model's choice stands.
"""

import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeGuard, TypeVar

from amplifier_core import HookResult
from amplifier_core.boundary import Boundary
from amplifier_core.handler_call import Handler
from amplifier_kit.mounting import Handlers
from amplifier_kit.types import EventData, JsonObject

logger = logging.getLogger(__name__)

TOOL_SELECTING = "tool:selecting"
TOOL_SELECTED = "tool:selected"
DECISION_TOOL = "decision:tool_resolution"
DECISION_AGENT = "decision:agent_resolution"
DECISION_CONTEXT = "decision:context_resolution"

S = TypeVar("S", bound="Scheduler")

_UNDECIDED = 0.5  # the score of an answer for which nothing better speaks


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several options, how good it is between 0 and 1, and why."""

    option: str
    score: float
    rationale: str
    metadata: JsonObject = field(default_factory=dict)


def model_decides_on_error(
    handler: Callable[[S, str, EventData], Awaitable[HookResult]],
) -> Callable[[S, str, EventData], Awaitable[HookResult]]:
    """Make a handler method of a scheduler answer `continue` to data that is not a dict, and if it fails."""

    @functools.wraps(handler)
    async def answer(scheduler: S, event: str, data: EventData) -> HookResult:
        if not isinstance(data, dict):
            return HookResult()
        message = "%s: %s could not be answered; what the model chose stands: %s"
        with Boundary(logger, message, scheduler.module_id, event, level=logging.ERROR):
            return await handler(scheduler, event, data)
        return HookResult()

    return answer


class Scheduler:
    """Four handlers around the questions that a subclass answers: `select`, `choose_tool`, `choose_agent`,
    `should_compact`.
    """

    module_id: ClassVar[str]
    handler_prefix: ClassVar[str]
    priority: ClassVar[int]

    async def select(self, tool_name: str, data: EventData) -> HookResult:
        """Judge the tool that is about to be selected."""
        raise NotImplementedError

    def choose_tool(self, available: list[str], data: EventData) -> Choice | None:
        """Return the best of the available tools, which are at least one."""
        raise NotImplementedError

    def choose_agent(self, available: list[str], data: EventData) -> Choice | None:
        """Return the best of the available agents, which are at least one."""
        raise NotImplementedError

    def should_compact(self, context_size: float, max_size: float) -> bool:
        """True if a context of that size is to be compacted."""
        raise NotImplementedError

    def register_on(self, handlers: Handlers) -> None:
        """Register the four handlers."""
        for event, handler in (
            (TOOL_SELECTING, self.handle_tool_selecting),
            (DECISION_TOOL, self.handle_tool_resolution),
            (DECISION_AGENT, self.handle_agent_resolution),
            (DECISION_CONTEXT, self.handle_context_resolution),
        ):
            self.register_one(handlers, event, handler, priority=self.priority)

    def register_one(self, handlers: Handlers, event: str, handler: Handler, *, priority: int) -> None:
        """Register a handler under the scheduler's name for the event, such as `cost:tool_selecting`."""
        name = f"{self.handler_prefix}:{event.removeprefix('decision:').replace(':', '_')}"
        handlers.register(event, handler, priority=priority, name=name)

    @model_decides_on_error
    async def handle_tool_selecting(self, event: str, data: EventData) -> HookResult:
        tool_name = tool_in_question(data)
        return HookResult() if tool_name is None else await self.select(tool_name, data)

    @model_decides_on_error
    async def handle_tool_resolution(self, event: str, data: EventData) -> HookResult:
        available = options(data, "available_tools")
        return _answer("selected_tool", self.choose_tool(available, data) if available else None)

    @model_decides_on_error
    async def handle_agent_resolution(self, event: str, data: EventData) -> HookResult:
        available = options(data, "available_agents")
        return _answer("selected_agent", self.choose_agent(available, data) if available else None)

    @model_decides_on_error
    async def handle_context_resolution(self, event: str, data: EventData) -> HookResult:
        size, limit = data.get("context_size"), data.get("max_size")
        if not (_is_number(size) and _is_number(limit) and limit > 0):
            return HookResult()
        should_compact = self.should_compact(size, limit)
        decision = {
            "should_compact": should_compact,
            "compaction_strategy": "progressive" if should_compact else None,
            "score": _UNDECIDED,
            "rationale": f"the context holds {size} of {limit}",
            "metadata": {"scheduler": self.module_id},
        }
        return HookResult(data=decision)


def tool_in_question(data: EventData) -> str | None:
    """Return the tool that stands to be selected: another scheduler's choice (`tool`), else the model's."""
    return next((data[key] for key in ("tool", "tool_name") if data.get(key) and isinstance(data[key], str)), None)


def options(data: EventData, key: str) -> list[str]:
    """Return the names to choose from."""
    available = data.get(key)
    return [name for name in available if isinstance(name, str)] if isinstance(available, list | tuple) else []


def use_instead(tool_name: str, data: EventData, *, reason: str) -> HookResult:
    """Return the answer to `tool:selecting` that puts another tool in place of the chosen one."""
    return HookResult(action="modify", data={**data, "tool_name": tool_name, "tool": tool_name}, reason=reason)


def _answer(key: str, choice: Choice | None) -> HookResult:
    if choice is None:
        return HookResult()
    answer = {
        key: choice.option,
        "score": choice.score,
        "rationale": choice.rationale,
        "metadata": choice.metadata,
    }
    return HookResult(data=answer)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
