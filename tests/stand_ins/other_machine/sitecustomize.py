"""A process that takes itself for one on another machine: put this directory on PYTHONPATH. OTHER_HOST is the name of
the machine, and the file that SHIFTED_CLOCK names has the seconds by which its clock is wrong, which can be set while
the process runs. Only the time of day is wrong, as it is when somebody sets a clock. What it and its children import of
modules is written into the directory that IMPORTED names, in a file for each process."""

import datetime
import os
import sys
import time
import warnings
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
    warnings.filterwarnings("ignore", "datetime.datetime size changed")  # what is compiled compares it
    time.time = _time
    datetime.datetime = _Shifted  # type: ignore[misc]

if "OTHER_HOST" in os.environ:
    import socket

    socket.gethostname = lambda: os.environ["OTHER_HOST"]

if "IMPORTED" in os.environ:

    def _write_down(event: str, facts: tuple[Any, ...]) -> None:
        if event == "exec" and (at := facts[0].co_filename.find("/amplifier_module_")) >= 0:
            with open(f"{os.environ['IMPORTED']}/{os.getpid()}", "a") as file:  # noqa: PTH123 - as above
                file.write(f"{facts[0].co_filename[at + 1 :].partition('/')[0]}\n")

    sys.addaudithook(_write_down)
