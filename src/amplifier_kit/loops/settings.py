"""The configuration that all loops share."""

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Self

from amplifier_kit.config import ModuleConfig
from amplifier_kit.types import EventData

# Messages that reach a turn while it runs.


logger = logging.getLogger(__name__)

DEFAULT_MAXSIZE = 100
CAPABILITY = "session.steer"
STEERING_INJECTED = "orchestrator:steering_injected"


class SteeringQueueFull(RuntimeError):
    """No further message is taken before the running turn has read some."""


class SteeringQueue:
    """User messages in the order in which they came, from any thread."""

    def __init__(self, maxsize: int = DEFAULT_MAXSIZE) -> None:
        self._maxsize = maxsize
        self._messages: deque[str] = deque()
        self._lock = threading.Lock()

    def steer(self, message: str) -> None:
        """Queue a message; raises `ValueError` for an empty one and `SteeringQueueFull` when there is no room."""
        if not isinstance(message, str) or not message.strip():
            raise ValueError("a steering message must be a non-empty string")
        with self._lock:
            if len(self._messages) >= self._maxsize:
                raise SteeringQueueFull(f"{self._maxsize} messages are already waiting")
            self._messages.append(message)

    def drain(self) -> list[str]:
        """Return all messages, oldest first, and empty the queue."""
        with self._lock:
            messages = list(self._messages)
            self._messages.clear()
            return messages

    def clear(self) -> int:
        """Empty the queue and return how many messages that discarded."""
        return len(self.drain())

    def forget_earlier(self) -> None:
        """Empty the queue at the beginning of a turn."""
        if discarded := self.clear():
            logger.warning("%d steering messages were meant for an earlier turn and are dropped", discarded)

    @property
    def is_empty(self) -> bool:
        return not self._messages


def steering_injected(orchestrator: str, content: str, iteration: int, remaining: int) -> EventData:
    """Return what `orchestrator:steering_injected` tells."""
    facts = {"content": content, "iteration": iteration, "queued_remaining": remaining}
    return {"orchestrator": orchestrator, **facts, "metadata": None}


UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How a loop runs its turns."""

    max_iterations: int = UNLIMITED
    default_provider: str | None = None
    extended_thinking: bool = False
    reasoning_effort: str | None = None
    timeout: float | None = None
    parallel_tools: bool = True
    max_parallel_tools: int = 0
    provider_failover: bool = False
    max_empty_responses: int = 3
    max_queued_steers: int = DEFAULT_MAXSIZE

    @classmethod
    def read(cls, config: ModuleConfig, *, has_parallel_tools: bool = True) -> Self:
        """Read the shared keys; the caller reads its own and then calls `warn_unknown`."""
        timeout = config.number("timeout", None)
        return cls(
            max_iterations=config.integer("max_iterations", UNLIMITED, minimum=UNLIMITED),
            default_provider=config.text("default_provider", None),
            extended_thinking=config.boolean("extended_thinking", False),
            reasoning_effort=config.text("reasoning_effort", None) or None,
            timeout=timeout if timeout is not None and timeout > 0 else None,
            parallel_tools=config.boolean("parallel_tools", True) if has_parallel_tools else False,
            max_parallel_tools=config.integer("max_parallel_tools", 0, minimum=0) if has_parallel_tools else 0,
            provider_failover=config.boolean("provider_failover", False),
            max_empty_responses=config.integer("max_empty_responses", 3, minimum=1),
            max_queued_steers=config.integer("max_queued_steers", DEFAULT_MAXSIZE, minimum=1),
        )
