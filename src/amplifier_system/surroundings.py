"""Where ids, chance and the time come from: the system, unless a caller runs code in surroundings of its own making.

A simulation does, to have the same run twice; whatever is begun inside of its surroundings stays in them. Code that
asks here for an id, a draw or the time needs to know nothing of it.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from contextvars import ContextVar

_CHANCE = random.Random()


class Surroundings:
    """The system's: ids that no one can guess, and the clock of this machine."""

    def token(self, digits: int) -> str:
        """Return a hexadecimal text that was never there before."""
        return secrets.token_hex(digits // 2)

    @property
    def chance(self) -> random.Random:
        """What draws, where nothing depends on what is drawn."""
        return _CHANCE

    time_ns: Callable[[], int] = staticmethod(time.time_ns)
    """Returns the time of day; every event asks for it."""


_present: ContextVar[Surroundings] = ContextVar("surroundings", default=Surroundings())  # noqa: B039 - it has no state


def new_token(digits: int = 32) -> str:
    return _present.get().token(digits)


def chance() -> random.Random:
    return _present.get().chance


def time_ns() -> int:
    return _present.get().time_ns()


def steady_time() -> float:
    """Return a number of seconds that only grows, by which durations are measured."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def enter(surroundings: Surroundings) -> None:
    """Have the present context, and everything that is begun in it, in other surroundings from now on."""
    _present.set(surroundings)
