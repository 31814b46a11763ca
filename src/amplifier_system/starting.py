"""A program that still imports what it needs: Ctrl-C ends it as it ends any program, without a traceback."""

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
