"""Messages that reach a turn while it runs."""

import logging
import threading
from collections import deque

from amplifier_kit.types import EventData

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
