"""How long a text may keep the processor busy."""

from __future__ import annotations

import time

_LOOK_EVERY = 64


class TooSlowError(Exception):
    """A text takes longer than it may."""


class Budget:
    """Processor time of this thread, so that a busy machine makes nobody's text a slow one."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.thread_time() + seconds
        self._until_look = _LOOK_EVERY

    def check(self) -> None:
        """Go on, or give up.

        Raises:
            TooSlowError: the time is used up.
        """
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = _LOOK_EVERY
            if time.thread_time() > self._ends:
                raise TooSlowError
