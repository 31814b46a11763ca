"""A part of a conversation: its end, or what stands before or after a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .json_lines import count_lines, read_since

_Message = dict[str, Any]


@dataclass(frozen=True)
class MessagePage:
    """Some messages, how many there are in all, and whether there are more in the direction that was asked for."""

    messages: Sequence[_Message]
    total: int
    has_more: bool


@dataclass(frozen=True)
class Place:
    """Where a page is: the last `limit` messages, those before one, or the first ones after one."""

    limit: int
    before: str | None = None
    after: str | None = None

    def page(self, messages: Sequence[_Message], fits: Callable[[_Message], bool] = lambda _: True) -> MessagePage:
        """Return the page of those messages of a conversation that fit; `before` and `after` may name any."""
        places = {message.get("id"): place for place, message in enumerate(messages)}
        begin = places.get(self.after, -1) + 1 if self.after else 0
        end = places.get(self.before, len(messages)) if self.before else len(messages)
        between = [message for message in messages[begin:end] if fits(message)]
        part = between[: self.limit] if self.after else between[-self.limit :]
        return MessagePage(part, sum(map(fits, messages)), has_more=len(part) < len(between))

    def read(self, path: Path) -> MessagePage:
        """Return the page of a transcript, of which no more is read than from its end to there."""
        return replace(self.page(read_since(path, _Passed(self))), total=count_lines(path))


class _Passed:
    """Hears messages from the last to the first, and says of which on none is needed; one more than wanted is."""

    def __init__(self, place: Place) -> None:
        self._awaited = {place.before, place.after} - {None, ""}
        self._wanted = 0 if place.after else place.limit + 1

    def __call__(self, message: _Message) -> bool:
        if self._awaited:
            self._awaited.discard(message.get("id"))
            return False
        self._wanted -= 1
        return self._wanted < 0
