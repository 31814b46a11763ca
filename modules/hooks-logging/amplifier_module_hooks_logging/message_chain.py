"""What a log line says of a request's messages: how many they are, and a hash that shows which."""

import logging
from hashlib import sha256
from typing import Any

from amplifier_core.boundary import Boundary

from .encoding import encode_canonical

logger = logging.getLogger(__name__)

_MIN_REMEMBERED = 1024


class MessageChain:
    """Summarises the messages of successive requests, which mostly are those of the last one and a few more.

    The hash is a chain over the digests of the single messages. A message is serialized once: its digest is remembered
    for the object, and the chain goes on where that of the last request ended.
    """

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._link = b""
        self._digests: dict[int, tuple[Any, bytes]] = {}  # the object is kept, so that its id stays its own

    def summary(self, messages: list[Any]) -> dict[str, Any]:
        """Return the number of messages and their hash."""
        if not self._continues(messages):
            self._messages, self._link = [], b""
        for message in messages[len(self._messages) :]:
            self._link = sha256(self._link + self._digest(message)).digest()
            self._messages.append(message)
        if len(self._digests) > max(_MIN_REMEMBERED, 2 * len(messages)):
            self._digests = {id(message): (message, self._digest(message)) for message in messages}
        return {"count": len(messages), "hash": self._link.hex()}

    def _continues(self, messages: list[Any]) -> bool:
        with Boundary(logger, "messages of two requests cannot be compared: %s", level=logging.DEBUG):
            return messages[: len(self._messages)] == self._messages  # mostly the same objects, never looked into
        return False

    def _digest(self, message: Any) -> bytes:
        known = self._digests.get(id(message))
        if known is None:
            text = encode_canonical(message).encode("utf-8", "surrogatepass")
            known = self._digests[id(message)] = (message, sha256(text).digest())
        return known[1]
