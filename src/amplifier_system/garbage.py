"""When a process that lives long looks for garbage: seldom, and never among what it has imported."""

import gc

_NEW_OBJECTS = 50_000


def look_seldom() -> None:
    """Look for garbage after many new objects: imports make hundreds of thousands of them, and no garbage."""
    gc.set_threshold(_NEW_OBJECTS)


def end_the_start() -> None:
    """Look seldom from now on, in a process that put off looking at all until it had imported what it needs."""
    if gc.get_threshold()[0] > _NEW_OBJECTS:
        keep_what_is_there()
        look_seldom()


def keep_what_is_there() -> None:
    """Never look again through what is there now; for code and tables that takes longer than anybody wants to wait."""
    gc.freeze()
