"""Where a request's prompt may be cached: at most four markers, each after a part that will come again unchanged.

One stands after the system's text, one after the tools, two in the conversation. Its tail may differ from request to
request, because hooks add reminders that are not stored: how long that tail is, messages declare (`metadata.ephemeral`)
or the previous request of the conversation shows.
"""

import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from .content_blocks import is_blank
from .conversation import THINKING_BLOCKS, Conversation, WireMessage

logger = logging.getLogger(__name__)

_CONVERSATIONS = 32


@dataclass(slots=True)
class _Seen:
    """The latest request of a conversation, and how much of the one before it had changed at its end."""

    fingerprints: list[bytes]
    tail: int | None = None


class PromptCache:
    """Chooses the messages that carry a marker, and remembers what conversations looked like."""

    def __init__(self, *, infers_from_history: bool) -> None:
        self._infers_from_history = infers_from_history
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()

    def marked(self, conversation: Conversation) -> set[int]:
        """Return the places of the messages whose last block gets a marker, two at most."""
        messages = conversation.messages
        if len(messages) < 2:
            return set()
        tail = self._tail(conversation)
        if tail is None:
            return set()
        primary = _last_eligible(messages, len(messages) - tail)
        if primary is None:
            return set()
        secondary = _secondary(messages, primary)
        return {primary} if secondary is None else {primary, secondary}

    def _tail(self, conversation: Conversation) -> int | None:
        """Return how many messages at the end may not come again, None when nothing is known about that."""
        declared = _declared_tail(conversation.messages) if conversation.says_what_is_ephemeral else None
        if not self._infers_from_history:
            return declared
        observed, is_stranger = self._observe(conversation)
        if is_stranger:
            logger.warning("the conversation has nothing in common with its previous request; it is not cached")
            return None
        known = [tail for tail in (declared, observed) if tail is not None]
        return max(known, default=None)

    def _observe(self, conversation: Conversation) -> tuple[int | None, bool]:
        """Return how long the changed end of the previous request was, and whether all of it was different."""
        now = [message.fingerprint for message in conversation.messages]
        first = next((message for message in conversation.messages if not message.is_developer), None)
        begins = first.fingerprint if first is not None else b""
        key = hashlib.blake2b(conversation.system.encode("utf-8", "replace") + b"\0" + begins, digest_size=16).digest()
        before = self._seen.pop(key, None)
        seen = self._seen[key] = _Seen(now, before.tail if before else None)
        if len(self._seen) > _CONVERSATIONS:
            self._seen.popitem(last=False)
        if before is None or before.fingerprints == now:
            return seen.tail, False
        common = _common_prefix(before.fingerprints, now)
        seen.tail = len(before.fingerprints) - common
        return seen.tail, common == 0


def marker(*, ttl_1h: bool = False) -> dict[str, Any]:
    """Return a marker; what stands before it is cached for five minutes or an hour."""
    return {"type": "ephemeral", "ttl": "1h"} if ttl_1h else {"type": "ephemeral"}


def _common_prefix(before: list[bytes], now: list[bytes]) -> int:
    pairs = zip(before, now, strict=False)
    return next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(before), len(now)))


def _declared_tail(messages: list[WireMessage]) -> int:
    tail = 0
    for distance, message in enumerate(reversed(messages), start=1):
        if message.is_results:
            break
        if message.is_ephemeral:
            tail = distance
    return tail


def _secondary(messages: list[WireMessage], primary: int) -> int | None:
    """Return the place of the marker that keeps the previous turn cached while this one grows."""
    places = range(len(messages))
    beginning = next((place for place in places if not messages[place].is_developer), None)
    user = next((place for place in reversed(places) if _is_real_user(messages[place])), None)
    if user is None:
        return None
    if user == beginning:
        place = primary - 2
        return place if place >= 0 and _is_eligible(messages, place) else None
    return _last_eligible(messages, min(user, primary))


def _is_real_user(message: WireMessage) -> bool:
    return message.is_real_user and not message.is_ephemeral


def _last_eligible(messages: list[WireMessage], end: int) -> int | None:
    return next((place for place in range(end - 1, -1, -1) if _is_eligible(messages, place)), None)


def _is_eligible(messages: list[WireMessage], place: int) -> bool:
    """Say whether the last block of a message can carry a marker."""
    last = messages[place].blocks[-1]
    if last["type"] in THINKING_BLOCKS or is_blank(last):
        return False
    is_answered = place + 1 < len(messages) and messages[place + 1].is_results
    return not (last["type"] == "tool_use" and is_answered)
