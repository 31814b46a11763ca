"""What has been streamed of an answer that is not complete yet, stored about twice a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amplifier_system.tasks import start_task
from amplifierd.exceptions import SessionError

from .interruption import PARTIAL
from .journal import PIECES
from .transcript import Transcript

logger = logging.getLogger(__name__)

_INTERVAL_S = 0.5


class PartialAnswer:
    """Collects the text of an answer while it comes. `after` names the message that the answer will follow.

    An answer is over when the transcript has another message of the assistant, and begun anew when a provider that was
    cut off is asked again.
    """

    def __init__(self, write: Callable[..., Awaitable[Any]], transcript: Transcript) -> None:
        self._write, self._transcript = write, transcript
        self._answer: tuple[int, object] | None = None
        self._after: str | None = None
        self._unsaved: list[str] = []
        self._heard_from: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None

    def hear(self, event: str, data: Mapping[str, Any]) -> None:
        """Take a piece of an answer."""
        text = data.get(PIECES[event])
        kind = data.get("block_type") or data.get("type") or "text"
        if isinstance(text, str) and text and kind == "text" and self._heard_from in (None, event):
            self._heard_from = event  # a loop may repeat what its provider streams
            self._take(text, data.get("request_id"))
            if self._timer is None and (self._saving is None or self._saving.done()):
                self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._begin_to_save)

    def _take(self, text: str, request_id: object) -> None:
        answer = (self._transcript.answers, request_id)
        if answer != self._answer:
            self._answer, self._after, self._unsaved = answer, self._transcript.last_id, []
        self._unsaved.append(text)

    def _begin_to_save(self) -> None:
        self._timer = None
        self._saving = start_task(self._save())

    async def _save(self) -> None:
        text, self._unsaved = "".join(self._unsaved), []
        if text and self._answer is not None and self._answer[0] == self._transcript.answers:
            piece = {"text": text, "after": self._after, "request_id": self._answer[1]}
            try:
                await self._write(PARTIAL, piece)
            except SessionError as error:  # the caller who waits for the answer meets it as well
                logger.warning("a piece of an answer is not stored: %s", error)

    async def settle(self) -> None:
        """Forget what is unsaved: the turn has ended."""
        self._unsaved.clear()
        self._answer = self._heard_from = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)
            self._saving = None
