"""The stored events of one session: pages of `events.jsonl`, found through an index of its blocks.

`.events.index`, beside the file, has a line for every half megabyte of events or so:

    9b1c04e7 {"from": 0, "to": 524411, "seq": 812, "mark": 2863311530, "kinds": [["INFO", "tool:pre", 96], …]}

A line begins with its own checksum; `mark` is that of the last bytes of the block. The index is a cache: whoever reads
or writes events appends the blocks that it lacks, and can do without it. What does not agree with the file is not
believed, and the index is made anew.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .event_page import Event, EventPage, EventPlace, number_of

EVENTS = "events.jsonl"
EVENT_INDEX = ".events.index"

BLOCK_BYTES = 1 << 19
_CHUNK = 1 << 18
_MARKED = 4096  # bytes at the end of a block by which it is recognised
_HEAD = re.compile(rb'\{"seq":(\d{1,18}),(?:"epoch":\d+,)?"ts":"[^"\\]*","lvl":"([^"\\]*)","event":"([^"\\]*)"')

_NO_HEAD = (0, (None, ""))

Parse = Callable[[bytes], "Event | None"]
Kind = tuple[str | None, str]
"""The level and the name of an event."""


class _WrongIndexError(Exception):
    """The index says something else than the file."""


@dataclass(frozen=True)
class _Block:
    """Whole lines of the file; `seq` is the highest number up to its end."""

    start: int
    end: int
    seq: int
    mark: int
    kinds: Mapping[Kind, int]


class EventFile:
    """The events in the directory of a session. Any number of processes may read, and one may append."""

    def __init__(self, directory: Path) -> None:
        self._path, self._index = directory / EVENTS, directory / EVENT_INDEX

    def read(self, place: EventPlace, parse: Parse | None = None) -> EventPage:
        """Return a page, of which little more is read than what is on it; none is there without a file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return EventPage((), 0, has_more=False)
        try:
            reader = _Reader(descriptor, place, parse or parse_event)
            if not place.counted and not place.after_seq:
                return reader.read_on(place.start)
            try:
                return reader.page(self._blocks(descriptor))
            except _WrongIndexError:
                self._discard()
                return reader.page(self._blocks(descriptor))
        finally:
            os.close(descriptor)

    def bring_up_to_date(self) -> int:
        """Add to the index what it lacks, and return up to which byte it knows the file; nothing fails for an index."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            return max((block.end for block in self._blocks(descriptor) if _is_whole(block)), default=0)
        except OSError:
            return 0
        finally:
            os.close(descriptor)

    def _blocks(self, descriptor: int) -> list[_Block]:
        """Return the blocks of the whole file; those that the index lacks are added to it."""
        known = self._load()
        if known and not _is_there(descriptor, known[-1]):
            self._discard()
            known = []
        added = list(_scan(descriptor, known[-1] if known else None))
        self._save([block for block in added if _is_whole(block)])
        return [*known, *added]

    def _load(self) -> list[_Block]:
        try:
            lines = self._index.read_bytes().split(b"\n")
        except OSError:
            return []
        blocks: list[_Block] = []
        for line in lines:  # several processes may have added the same
            block = _parse_block(line)
            if block is not None and block.start == (blocks[-1].end if blocks else 0):
                blocks.append(block)
        return blocks

    def _save(self, blocks: Sequence[_Block]) -> None:
        if not blocks:
            return
        data = b"\n" + b"".join(_encode_block(block) for block in blocks)  # after what a killed process left
        with suppress(OSError):  # the disk is full, or it is read-only
            descriptor = os.open(self._index, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)

    def _discard(self) -> None:
        with suppress(OSError):
            self._index.unlink(missing_ok=True)


class _Reader:
    """Reads one page."""

    def __init__(self, descriptor: int, place: EventPlace, parse: Parse) -> None:
        self._descriptor, self._place, self._parse = descriptor, place, parse
        self._fitting: dict[Kind, bool] = {}

    def page(self, blocks: Sequence[_Block]) -> EventPage:
        """Return the page of a file that consists of these blocks."""
        place = self._place
        first = bisect_right([block.seq for block in blocks], place.after_seq) if place.after_seq else 0
        blocks = blocks[first:]
        if not place.counted:
            return self.read_on(self._begin_of(blocks[0]) if blocks else self._size())
        counts = [sum(count for kind, count in block.kinds.items() if self._fits(kind)) for block in blocks]
        if blocks and place.after_seq:
            counts[0] = sum(1 for _ in self._fitting_lines(blocks[0]))
        total = sum(counts)
        begin, last = place.window(total)
        events: list[Event] = []
        passed = end = 0
        for block, count in zip(blocks, counts, strict=True):
            if passed + count > begin and passed < last:
                for number, (position, line) in enumerate(self._checked_lines(block, count), start=passed):
                    if number >= last:
                        break
                    if number >= begin and (event := self._parse(line)) is not None:
                        events.append(event)
                        end = position
            passed += count
        return EventPage(events, total, place.has_more(begin, last, total), end)

    def read_on(self, start: int) -> EventPage:
        """Return what follows a position, without counting what there is."""
        events: list[Event] = []
        size, end = self._size(), start
        for position, line in lines_between(self._descriptor, start, size):
            end = position
            head = _read_head(line) if self._place.is_filtered else _NO_HEAD
            if head is not None and self._fits(head[1]) and (event := self._parse(line)) is not None:
                events.append(event)
            if len(events) >= self._place.limit or end - start >= self._place.most_bytes:
                break
        else:
            return EventPage(events, 0, has_more=False, end=end)
        return EventPage(events, 0, has_more=end < size, end=end)

    def _begin_of(self, block: _Block) -> int:
        """Return where in a block the events after the wanted number begin."""
        begin = block.start
        for position, line in lines_between(self._descriptor, block.start, block.end):
            head = _read_head(line)
            if head is not None and head[0] > self._place.after_seq:
                break
            begin = position
        return begin

    def _checked_lines(self, block: _Block, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a block that fit; they are as many as the index says, or it is wrong."""
        if block.start and os.pread(self._descriptor, 1, block.start - 1) != b"\n":
            raise _WrongIndexError
        found = 0
        for found, line in enumerate(self._fitting_lines(block), start=1):  # noqa: B007 - how many there were
            yield line
        if found != count:
            raise _WrongIndexError

    def _fitting_lines(self, block: _Block) -> Iterator[tuple[int, bytes]]:
        after = self._place.after_seq
        for position, line in lines_between(self._descriptor, block.start, block.end):
            head = _read_head(line)
            if head is not None and (not after or head[0] > after) and self._fits(head[1]):
                yield position, line

    def _fits(self, kind: Kind) -> bool:
        if not self._place.is_filtered:
            return True
        found = self._fitting.get(kind)
        if found is None:
            found = self._fitting[kind] = self._place.fits(*kind)
        return found

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size


def parse_event(line: bytes) -> Event | None:
    """Return the event on a line, None when there is none."""
    try:
        event: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def lines_between(descriptor: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines between two positions, each with the position after it."""
    begun, position = b"", start
    while start < end:
        data = os.pread(descriptor, min(max(_CHUNK, len(begun)), end - start), start)
        if not data:
            return
        start += len(data)
        lines = (begun + data).split(b"\n")
        begun = lines.pop()
        for line in lines:
            position += len(line) + 1
            yield position, line


def _read_head(line: bytes) -> tuple[int, Kind] | None:
    """Return the number and the kind of an event, None when there is none on a line."""
    head = _HEAD.match(line)
    if head is not None:
        with suppress(UnicodeDecodeError):
            return int(head[1]), (head[2].decode(), head[3].decode())
    event = parse_event(line)
    if event is None:
        return None
    level = event.get("lvl")
    return number_of(event), (level if isinstance(level, str) else None, str(event.get("event")))


def _scan(descriptor: int, after: _Block | None) -> Iterator[_Block]:
    """Yield the blocks after one, or all; what is at the end and not enough for a block comes last."""
    begin = end = after.end if after is not None else 0
    highest = after.seq if after is not None else 0
    kinds: Counter[Kind] = Counter()
    for position, line in lines_between(descriptor, begin, os.fstat(descriptor).st_size):
        end = position
        if (head := _read_head(line)) is not None:
            highest = max(highest, head[0])
            kinds[head[1]] += 1
        if end - begin >= BLOCK_BYTES:
            yield _Block(begin, end, highest, _mark(descriptor, end), kinds)
            begin, kinds = end, Counter()
    if end > begin:
        yield _Block(begin, end, highest, 0, kinds)


def _is_whole(block: _Block) -> bool:
    return block.end - block.start >= BLOCK_BYTES


def _is_there(descriptor: int, block: _Block) -> bool:
    return block.end <= os.fstat(descriptor).st_size and _mark(descriptor, block.end) == block.mark


def _mark(descriptor: int, end: int) -> int:
    return zlib.crc32(os.pread(descriptor, min(_MARKED, end), max(0, end - _MARKED)))


def _encode_block(block: _Block) -> bytes:
    kinds = [[level, name, count] for (level, name), count in block.kinds.items()]
    value = {"from": block.start, "to": block.end, "seq": block.seq, "mark": block.mark, "kinds": kinds}
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse_block(line: bytes) -> _Block | None:
    try:
        if int(line[:8], 16) != zlib.crc32(line[9:]):
            return None
        value = json.loads(line[9:])
        kinds = {(level, str(name)): int(count) for level, name, count in value["kinds"]}
        return _Block(int(value["from"]), int(value["to"]), int(value["seq"]), int(value["mark"]), kinds)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
