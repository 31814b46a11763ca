"""How often an address failed to log in."""

from __future__ import annotations

import time
from collections import OrderedDict, deque

from amplifierd.exceptions import RequestRefusedError

_ATTEMPTS, _PER_SECONDS = 5, 60.0
_MOST_ADDRESSES = 10_000


class FailedAttempts:
    """Counts the failures of each address; five a minute are answered, more are refused."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Refuse an address before its next attempt is looked at.

        Raises:
            RequestRefusedError: there were too many failures lately.
        """
        lately = self._failed.get(address, deque[float]())
        if len(lately) == _ATTEMPTS and (wait := _PER_SECONDS - (time.monotonic() - lately[0])) > 0:
            raise RequestRefusedError("too many failed attempts", code="rate-limit", retry_after=wait)

    def count(self, address: str) -> None:
        """Take note of a failure.

        Raises:
            RequestRefusedError: there were too many lately.
        """
        self.check(address)
        self._failed.setdefault(address, deque(maxlen=_ATTEMPTS)).append(time.monotonic())
        self._failed.move_to_end(address)
        if len(self._failed) > _MOST_ADDRESSES:
            self._failed.popitem(last=False)
