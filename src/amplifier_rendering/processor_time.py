"""How long a text may keep the processor busy."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlowError(Exception):
    """A text takes longer than it may."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Give up a block that has used this much processor time, so that a busy machine does not make a text slow.

    A signal ends it wherever it is, in the middle of matching a pattern as well. Signals are for the main thread of a
    process, which has the timer to itself.

    Raises:
        TooSlowError: in the block, or at its end.
    """
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TooSlowError
