"""A directory that is a link to another one every other moment."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def swapped(place: Path, outside: Path) -> Iterator[None]:
    """Exchange a directory with a link to `outside`, again and again, until the block ends; then it is back.

    Whoever is at work there may make the directory anew while it is away, or remove the link; the directory comes back.
    """
    aside, link = place.with_name(f"{place.name}.aside"), place.with_name(f"{place.name}.link")
    stopped = threading.Event()

    def swap() -> None:
        while not stopped.is_set():
            with suppress(OSError):
                link.symlink_to(outside)
            with suppress(OSError):
                place.rename(aside)
                link.rename(place)
            while aside.exists():
                with suppress(OSError):
                    place.unlink() if place.is_symlink() else aside.rename(place)
                if aside.exists() and not place.is_symlink():
                    shutil.rmtree(place, ignore_errors=True)  # which follows no link

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        yield
    finally:
        stopped.set()
        swapping.join()
        link.unlink(missing_ok=True)
