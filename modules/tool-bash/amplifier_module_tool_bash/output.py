"""What a command prints: read to its end, kept within bounds, made readable."""

import codecs
import contextlib
import os
import selectors
import threading
from asyncio import AbstractEventLoop, Event
from typing import IO

_CHUNK_BYTES = 65_536
_KEPT_SHARE = 0.4
_LEAST_LINES_SHARE = 0.2
_BINARY_FROM_BYTES = 512
_BINARY_CONTROL_SHARE = 0.05
_CONTROL_BYTES = bytes({*range(32), 0x7F} - {*b"\t\n\r"})
_LONGEST_CHARACTER = 4


class Capture:
    """One stream: its beginning and its end, and exact numbers about all of it."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.total = 0
        self._limit = limit
        self._kept = int(limit * _KEPT_SHARE)
        self._head = bytearray()
        self._tail = bytearray()
        self._line_ends = 0
        self._control_bytes = 0
        self._decoder: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder("utf-8")("strict")

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._line_ends += data.count(b"\n")
        self._control_bytes += len(data) - len(data.translate(None, _CONTROL_BYTES))
        self._check_encoding(data)
        room = self._limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * max(self._kept, _CHUNK_BYTES):
            del self._tail[: -self._kept or None]

    @property
    def is_truncated(self) -> bool:
        return self.total > self._limit

    @property
    def text(self) -> str:
        """The stream as text; its middle is left out when it is too long, all of it if it is not text at all."""
        if self._is_binary:
            share = self._control_bytes / self.total
            return (
                f"[binary output withheld: {self.name}, {self.total} bytes, {share:.0%} control bytes;"
                " redirect it to a file to keep it]"
            )
        return self._shortened() if self.is_truncated else self._head.decode("utf-8", "replace")

    @property
    def _is_binary(self) -> bool:
        if self.total < _BINARY_FROM_BYTES or self._control_bytes <= self.total * _BINARY_CONTROL_SHARE:
            return False
        return self._decoder is None or bool(self._decoder.getstate()[0])

    def _check_encoding(self, data: bytes) -> None:
        if self._decoder is not None:
            try:
                self._decoder.decode(data)
            except UnicodeDecodeError:
                self._decoder = None

    def _shortened(self) -> str:
        head, tail = bytes(self._head[: self._kept]), self._last(self._kept)
        lines = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :] if b"\n" in tail else b""
        if len(lines[0]) + len(lines[1]) < self._limit * _LEAST_LINES_SHARE:
            marker = f"[...OUTPUT TRUNCATED (byte-level)...] {self._numbers}"
            return f"{_without_torn_end(head)}\n{marker}\n{_without_torn_start(tail)}"
        shown = [part.count(b"\n") + bool(part and not part.endswith(b"\n")) for part in lines]
        total = self._line_ends + (not self._last(1).endswith(b"\n"))
        counts = f"first {shown[0]} and last {shown[1]} of {total} lines shown, {total - sum(shown)} left out"
        before, after = (part.decode("utf-8", "replace") for part in lines)
        return f"{before}\n[...OUTPUT TRUNCATED...] {counts}; {self._numbers}\n\n{after}"

    @property
    def _numbers(self) -> str:
        return f"{self.total} bytes in total, limit {self._limit} bytes"

    def _last(self, count: int) -> bytes:
        kept = self._tail if len(self._tail) >= count else self._head + self._tail
        return bytes(kept[len(kept) - count :])


class PipeReader:
    """Reads both pipes of a child in a thread of its own, for as long as anyone holds them open.

    After `release` what still comes is read and forgotten, so that the writer is not disturbed.
    """

    def __init__(self, pipes: dict[IO[bytes], Capture], loop: AbstractEventLoop) -> None:
        self.is_drained = Event()
        self._pipes = pipes
        self._lock = threading.Lock()
        self._is_released = False
        threading.Thread(target=self._read, args=(loop,), name="bash-output", daemon=True).start()

    def release(self) -> None:
        """Leave the captures as they are."""
        with self._lock:
            self._is_released = True

    def _read(self, loop: AbstractEventLoop) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe, capture in self._pipes.items():
                selector.register(pipe, selectors.EVENT_READ, capture)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, _CHUNK_BYTES)
                    with self._lock:
                        if not self._is_released:
                            key.data.add(data)
                    if not data:
                        selector.unregister(key.fileobj)
        for pipe in self._pipes:
            pipe.close()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits any more
            loop.call_soon_threadsafe(self.is_drained.set)


def _without_torn_end(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def _without_torn_start(data: bytes) -> str:
    start = 0
    while start < min(len(data), _LONGEST_CHARACTER - 1) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")
