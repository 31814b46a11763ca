"""Where an event stands in its tree, and how far a client has seen it.

Stored events are numbered one after the other. What passes by and is never stored, a piece of an answer, has no such
number: it stands between two stored events, as the n-th piece after the first of them. The epoch grows whenever
another process goes on with the tree, so that its pieces are never taken for those of the process before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

_WRITTEN = re.compile(r"(?:([1-9][0-9]{0,17})-)?([0-9]{1,18})(?:\.([0-9]{1,18}))?", re.ASCII)


class Cursor(NamedTuple):
    """A place in the events of a tree: after the stored event `seq`, and after `piece` pieces that followed it.

    Cursors are ordered as their events were published. The `epoch` is 0 where it is not known: in lines that have
    none, in what a session begins with before a process holds it, and in a plain number that a client sends. Such a
    cursor is compared by its numbers alone, and written as a plain number.
    """

    epoch: int
    seq: int
    piece: int = 0

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return what an id of a stream says, `<epoch>-<seq>.<piece>` or a plain number; None if it is no such id."""
        found = _WRITTEN.fullmatch(text)
        if found is None or (found[1] is None) != (found[3] is None):
            return None
        return cls(int(found[1] or 0), int(found[2]), int(found[3] or 0))

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Self:
        """Return where a stored event stands."""
        return cls(_whole(line.get("epoch")), _whole(line.get("seq")))

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Self | None:
        """Return where an event stands that was published, None for one that belongs to no tree's events.

        One of an older daemon says only its number.
        """
        written, number = event.get("cursor"), event.get("sequence")
        if isinstance(written, str):
            return cls.parse(written)
        return cls(0, number) if isinstance(number, int) else None

    @classmethod
    def furthest(cls, cursors: Iterable[Cursor]) -> Self:
        """Return where the events of a tree end of which these are the last ones, one of each session."""
        epoch = seq = 0
        for one in cursors:  # one at a time: an imported session has millions
            epoch, seq = max(epoch, one.epoch), max(seq, one.seq)
        return cls(epoch, seq)

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}.{self.piece}" if self.epoch else str(self.seq)

    @property
    def sequence(self) -> int | None:
        """The number of a stored event, None for a piece."""
        return None if self.piece else self.seq

    @property
    def stored_before(self) -> int:
        """The number of the last event that was stored before this one was published."""
        return self.seq if self.piece else self.seq - 1

    def covers(self, event: Cursor) -> bool:
        """True if a client that has come to here has seen an event, or has seen a later one."""
        if self.epoch and event.epoch:
            return event <= self
        return event[1:] <= self[1:]

    def resumed(self, epoch: int) -> Cursor:
        """Return where a process begins that goes on after these events, under a hold with this epoch.

        A tree that was moved here brings its epochs along; the holds of this store may not have come so far yet.
        """
        return Cursor(max(epoch, self.epoch + 1), self.seq)

    def next_event(self) -> Cursor:
        """Return where the next stored event stands."""
        return Cursor(self.epoch, self.seq + 1)

    def next_piece(self) -> Cursor:
        """Return where the next piece stands, if it comes before another stored event."""
        return Cursor(self.epoch, self.seq, self.piece + 1)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
