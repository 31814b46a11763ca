"""An answer that is looked at before it is sent: that a session is elsewhere is nothing that a client has to know."""

from __future__ import annotations

import json

from starlette.types import Message, Send

from .problem_answers import MEDIA_TYPE

_ELSEWHERE = frozenset({"session-held", "not-ready"})
"""Problems of a daemon that has not begun anything, because another one has the session or it takes no more work."""

_STATUSES = frozenset({409, 503})


class HeldBack:
    """Sends an answer on, unless it may say that the session is elsewhere; that is kept, and `is_elsewhere` then."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._kept: list[Message] = []
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] in _STATUSES and _is_problem(message):
                self._kept.append(message)
                return
        elif self._kept:
            self._kept.append(message)
            if message.get("more_body", False) or self.is_elsewhere:
                return
            await self.release()
            return
        self.has_begun = True
        await self._send(message)

    @property
    def is_elsewhere(self) -> bool:
        """Whether what is kept says that nothing was done, and that it can be tried elsewhere."""
        if len(self._kept) < 2:
            return False
        try:
            problem = json.loads(b"".join(message.get("body", b"") for message in self._kept[1:]))
        except ValueError:
            return False
        told = problem.get("error", problem) if isinstance(problem, dict) else {}
        return isinstance(told, dict) and told.get("code") in _ELSEWHERE

    async def release(self) -> None:
        """Send what was kept after all."""
        kept, self._kept = self._kept, []
        for message in kept:
            self.has_begun = True
            await self._send(message)


def _is_problem(message: Message) -> bool:
    kind: bytes = dict(message.get("headers", ())).get(b"content-type", b"")
    return kind.startswith((MEDIA_TYPE.encode(), b"application/json"))
