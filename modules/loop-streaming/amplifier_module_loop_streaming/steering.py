"""Messages that reach a turn while it runs."""

import threading
from collections import deque

DEFAULT_MAXSIZE = 100


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
                raise SteeringQueueFull(f"{self._maxsize} messages are waiting already")
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

    @property
    def is_empty(self) -> bool:
        return not self._messages
