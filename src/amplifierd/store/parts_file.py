"""`parts.jsonl`: pieces of provider requests under their hashes, each stored once.

A line is `{"digest":…,"text":…}`, or `{"digest":…,"base64":…}` for bytes that are not text. Where each part lies is
remembered; what was appended since is looked through before an answer.
"""

from __future__ import annotations

import base64
import json
import os
import re
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .json_lines import encoded

_START = b'{"digest":"'
_DIGEST = re.compile(r"[A-Za-z0-9:_-]{8,128}")


class PartsFile:
    """The parts of one session; any number of these may read the file at the same time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[bytes, tuple[int, int]] = {}
        self._inode = 0
        self._end = 0

    def lines_for(self, parts: Mapping[str, bytes]) -> bytes:
        """Return the lines to append for those parts that are not there yet."""
        self._look()
        return part_lines({digest: part for digest, part in parts.items() if digest.encode() not in self._places})

    def find(self, digest: str) -> bytes | None:
        self._look()
        place = self._places.get(digest.encode())
        if place is None:
            return None
        start, length = place
        with self._path.open("rb") as file:
            file.seek(start)
            return part_of(json.loads(file.read(length)))

    def read_all(self) -> Mapping[str, bytes]:
        """Return every part that is there by its hash; each is read when it is asked for."""
        self._look()
        return PartsIn(self._path, {digest.decode(): place for digest, place in self._places.items()})

    def _look(self) -> None:
        """Take note of the lines that were appended since the last look."""
        try:
            with self._path.open("rb") as file:
                status = _status(file.fileno())
                if status != (self._inode, self._end):
                    self._read_on(file.fileno(), *status)
        except FileNotFoundError:
            self._places, self._inode, self._end = {}, 0, 0

    def _read_on(self, descriptor: int, inode: int, size: int) -> None:
        if inode != self._inode or size < self._end:
            self._places, self._inode, self._end = {}, inode, 0
        place = self._end
        for line in os.pread(descriptor, size - place, place).split(b"\n")[:-1]:
            if line.startswith(_START):
                digest = line[len(_START) : line.index(b'"', len(_START))]
                self._places.setdefault(digest, (place, len(line)))
            place += len(line) + 1
        self._end = place


class PartsIn(Mapping[str, bytes]):
    """Parts that stay in a file, also if it is removed later; `places` says where the line of each is, and how long."""

    def __init__(self, path: Path, places: Mapping[str, tuple[int, int]]) -> None:
        self._places = places
        if places:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)

    def __getitem__(self, digest: str) -> bytes:
        start, length = self._places[digest]
        return part_of(json.loads(os.pread(self._descriptor, length, start)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def part_of(entry: Mapping[str, Any]) -> bytes:
    """Return the content of a part, of which this is the line."""
    return base64.b64decode(entry["base64"]) if "base64" in entry else entry["text"].encode()


def part_pieces(parts: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the lines of parts, one at a time."""
    return (_line(digest, content) for digest, content in parts.items())


def part_lines(parts: Mapping[str, bytes]) -> bytes:
    return b"".join(part_pieces(parts))


def checked_digest(digest: str) -> str:
    """Return the hash of a part, under which it is stored.

    Raises:
        ValueError: a hash looks different.
    """
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"a part cannot be stored under {digest!r}: a hash has letters and digits only")
    return digest


def _line(digest: str, content: bytes) -> bytes:
    checked_digest(digest)
    try:
        value = {"digest": digest, "text": content.decode()}
    except UnicodeDecodeError:
        value = {"digest": digest, "base64": base64.b64encode(content).decode()}
    return encoded(value) + b"\n"


def _status(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_ino, status.st_size
