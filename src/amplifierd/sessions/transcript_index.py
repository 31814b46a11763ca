"""Finds messages of a transcript by what they say, so that a request can point at them instead of copying them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .message_digest import message_digest

TranscriptMessage = Mapping[str, Any]


class TranscriptIndex:
    """The messages of one transcript by hash, by id, and results by their call; a later one wins."""

    def __init__(self, messages: Iterable[TranscriptMessage] = ()) -> None:
        self._by_digest: dict[str, TranscriptMessage] = {}
        self._by_id: dict[str, TranscriptMessage] = {}
        self._results: dict[str, TranscriptMessage] = {}
        for message in messages:
            self.add(message)

    def clear(self) -> None:
        """Forget everything: another transcript takes the place of this one."""
        for known in (self._by_digest, self._by_id, self._results):
            known.clear()

    def add(self, message: TranscriptMessage) -> None:
        """Take in a message that was appended to the transcript."""
        self._by_digest[message_digest(_as_sent(message))] = message
        self._by_id[str(message.get("id"))] = message
        if message.get("role") == "tool" and message.get("tool_call_id"):
            self._results[str(message["tool_call_id"])] = message

    def find(self, digest: str) -> TranscriptMessage | None:
        """Return the message with that hash."""
        return self._by_digest.get(digest)

    def find_id(self, message_id: str) -> TranscriptMessage | None:
        return self._by_id.get(message_id)

    def find_result(self, tool_call_id: str) -> TranscriptMessage | None:
        """Return the message that answers a tool call."""
        return self._results.get(tool_call_id)


def _as_sent(message: TranscriptMessage) -> TranscriptMessage:
    """Return a message with the role that it has in requests; a transcript knows fewer."""
    metadata = message.get("metadata")
    role = metadata.get("requested_role") if isinstance(metadata, Mapping) else None
    return {**message, "role": role} if isinstance(role, str) else message
