"""A clock that can be set while a process runs: put this directory on PYTHONPATH, and the seconds by which it is to be
wrong into the file that SHIFTED_CLOCK names. Only the time of day is wrong, as it is when somebody sets a clock."""

import datetime
import os
import time
from typing import Any, Self

_exact, _real = time.time, datetime.datetime


def _time() -> float:
    try:
        with open(os.environ["SHIFTED_CLOCK"]) as file:  # noqa: PTH123 - pathlib would be imported everywhere
            return _exact() + float(file.read() or 0)
    except OSError:
        return _exact()


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real)


class _Shifted(_real, metaclass=_Meta):
    @classmethod
    def now(cls, tz: Any = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)


if "SHIFTED_CLOCK" in os.environ:
    time.time = _time
    datetime.datetime = _Shifted  # type: ignore[misc]
