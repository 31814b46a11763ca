"""Messages and events that stay where they are and are read whenever they are needed, a line at a time."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from amplifier_sessions.event_file import lines_between

from .json_lines import encoded, parse_line

_PIECE = 1 << 18

Line = dict[str, Any]


class StoredLines(Collection[Line]):
    """Lines that can be gone through any number of times; `begin` starts at the first one each time."""

    def __init__(self, begin: Callable[[], Iterable[Line]]) -> None:
        self._begin = begin
        self._count: int | None = None

    @classmethod
    def in_file(cls, path: Path) -> StoredLines:
        """Return the lines that a file has at this moment, also if it is appended to or replaced later."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return cls(lambda: ())
        return cls.in_descriptor(descriptor)

    @classmethod
    def in_descriptor(cls, descriptor: int) -> StoredLines:
        """Return the lines that an open file has at this moment; it is closed when they are not needed any more."""
        end = os.fstat(descriptor).st_size

        def begin() -> Iterator[Line]:
            parsed = (parse_line(line) for _, line in lines_between(descriptor, 0, end))
            return (line for line in parsed if line is not None)

        lines = cls(begin)
        weakref.finalize(lines, os.close, descriptor)
        return lines

    def __iter__(self) -> Iterator[Line]:
        yield from self._begin()  # here, so that this, and with it an open file, is kept as long as it is gone through

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    def __contains__(self, line: object) -> bool:
        return any(line == one for one in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment] # as of any list


def encoded_pieces(lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield lines as a file has them, many of them together."""
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(encoded(line))
        size += len(waiting[-1]) + 1
        if size >= _PIECE:
            yield b"\n".join(waiting) + b"\n"
            waiting, size = [], 0
    if waiting:
        yield b"\n".join(waiting) + b"\n"
