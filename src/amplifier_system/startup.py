"""A program that still imports what it needs: Ctrl-C ends it as it ends any program, without a traceback."""

import atexit
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def starting() -> Iterator[None]:
    """Import in this block; Ctrl-C ends the process there, unless its parent ignores Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# When a process that lives long looks for garbage: seldom, and never among what it has imported.


_NEW_OBJECTS = 50_000
_OF_A_START = 500_000


def begin_the_start() -> None:
    """Put off looking: imports make hundreds of thousands of objects, and no garbage. `end_the_start` has to follow.

    At its end the process does not look through everything once more either.
    """
    gc.set_threshold(_OF_A_START)
    atexit.register(gc.freeze)


def look_seldom() -> None:
    """Look for garbage after many new objects."""
    gc.set_threshold(_NEW_OBJECTS)


def end_the_start() -> None:
    """Look seldom from now on, in a process that put off looking at all until it had imported what it needs."""
    if gc.get_threshold()[0] > _NEW_OBJECTS:
        keep_what_is_there()
        look_seldom()


def keep_what_is_there() -> None:
    """Never look again through what is there now; for code and tables that takes too long."""
    gc.freeze()
