"""How a tool does its work: off the event loop, stoppable, and with an answer whatever happens."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from amplifier_core import ToolResult
from amplifier_core.boundary import emit_quietly
from amplifier_kit.types import Coordinator, EventData
from amplifier_system.tasks import run_to_end
from amplifier_system.threads import detached, in_thread

from .input import ToolFailure, failure

__all__ = ["announce", "answered", "detached", "in_worker", "run_to_end"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def answered(tool_name: str, work: Awaitable[ToolResult]) -> ToolResult:
    """Return what `work` returns; a failure or an unexpected exception becomes a failed result."""
    try:
        return await work
    except ToolFailure as problem:
        return problem.result()
    except Exception as exc:
        logger.exception("%s failed unexpectedly", tool_name)
        kind = type(exc).__name__
        return failure(f"{tool_name} failed unexpectedly ({kind}); the log says more", "internal_error", type=kind)


async def in_worker(work: Callable[[threading.Event], T]) -> T:
    """Run blocking `work` in a worker thread and return what it returns.

    When the caller is cancelled the event that `work` was given is set, and the cancellation goes on once `work` has
    ended, so that nothing is left half done; a second cancellation does not wait any longer.
    """
    return await in_thread(work, patient=False)


async def announce(coordinator: Coordinator, event: str, data: EventData) -> None:
    """Emit an event if anyone can hear it; a sink that fails changes nothing for the caller."""
    await emit_quietly(getattr(coordinator, "hooks", None), event, data)


class AnsweringTool(ABC):
    """A tool that says in `answer` what it does, and may raise there: `execute` returns a result whatever happens."""

    name: ClassVar[str]

    if TYPE_CHECKING:  # a class attribute, an attribute or a property, as the tool has it

        @property
        def input_schema(self) -> dict[str, Any]: ...

    def get_schema(self) -> dict[str, Any]:
        """Return the schema of the input."""
        return self.input_schema

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Do what the input asks for; a failure is a result, too."""
        return await answered(self.name, self.answer(input))

    @abstractmethod
    async def answer(self, given: Any) -> ToolResult:
        """Return the result for an unchecked input; a `ToolFailure` tells what is wrong."""
