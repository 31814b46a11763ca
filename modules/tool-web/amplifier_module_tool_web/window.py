"""The part of a text that was asked for."""

import codecs
from dataclasses import dataclass

SPARE_BYTES = 4  # read beyond a window: they tell that there is more, and complete its only character


@dataclass(frozen=True, slots=True)
class Window:
    """What was asked for: `limit` bytes from `offset`."""

    offset: int
    limit: int

    @property
    def needed(self) -> int:
        """How many bytes of a text tell all there is to know."""
        return self.offset + self.limit + SPARE_BYTES


@dataclass(frozen=True, slots=True)
class View:
    """What of a text is shown; `has_more` says that it goes on."""

    text: str
    size: int
    has_more: bool


def view(data: bytes, window: Window, encoding: str, *, has_more: bool, exact: bool = False) -> View:
    """Return what the window shows of `data`, which begins at its offset; `has_more`: not all of the rest is there.

    It ends between two characters and has at least one; an exact one ends where it ends.
    """
    has_more = has_more or len(data) > window.limit
    if exact or not has_more:
        data = data[: window.limit]
        return View(_shown(data, window, encoding), len(data), has_more)
    size = min(window.limit, len(data))
    whole = _whole(data[:size], encoding)
    while whole == 0 and size < len(data):
        size += 1
        whole = _whole(data[:size], encoding)
    return View(_shown(data[:whole], window, encoding), whole, has_more)


def note(window: Window, shown: View, total: int | None) -> str:
    """Return what is said below a text that goes on."""
    known = "an unknown total" if total is None else str(total)
    end = window.offset + shown.size
    return (
        f"\n\n[Truncated: bytes {window.offset} to {end} of {known}, limit {window.limit}. "
        f"To go on use offset={end}, a larger limit, or save_to_file.]"
    )


def _shown(data: bytes, window: Window, encoding: str) -> str:
    if window.offset and encoding == "utf-8":
        data = data[next((index for index, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), 0) :]
    text = data.decode(encoding, "replace")
    return text if window.offset else text.removeprefix("\ufeff")


def _whole(data: bytes, encoding: str) -> int:
    """Return how many of the bytes are whole characters."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    decoder.decode(data)
    return len(data) - len(decoder.getstate()[0])
