"""What a server prints beside the protocol: to a logger, to a file if one is wanted, and its end for error reports."""

import asyncio
import logging
from collections import deque
from pathlib import Path

from amplifier_kit.files import LineFile

from .definitions import printable
from .entries import ServerSettings

logger = logging.getLogger(__name__)

_LONGEST_LINE = 2000
_KEPT_LINES = 50
_KEPT_CHARACTERS = 8192
_LARGEST_FILE = 1 << 20
_CHUNK_BYTES = 1 << 16
_LONGEST_LINE_BYTES = 4 * _LONGEST_LINE
_MOST_WAITING = 1000


class ServerOutput:
    """The lines of one server, over all its restarts."""

    def __init__(self, settings: ServerSettings) -> None:
        self._redactor = settings.redactor
        self._logger = logging.getLogger(f"{__package__}.server.{settings.name}")
        self._level = logging.INFO if settings.module.verbose_servers else logging.DEBUG
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        log_dir = settings.module.server_log_dir
        self._file = _LogFile(log_dir / f"{settings.name}.log") if log_dir else None

    def tail(self) -> list[str]:
        """Return the last lines, as many as error reports have room for."""
        kept: list[str] = []
        room = _KEPT_CHARACTERS
        for line in reversed(self._tail):
            room -= len(line)
            if room < 0:
                break
            kept.append(line)
        return kept[::-1]

    async def add(self, line: str, level: int | None = None) -> None:
        """Take note of a line; with a level of its own it is a message of the server's, not output."""
        text = self._redactor.text(printable(line, keep="\t"))[:_LONGEST_LINE]
        if not text.strip():
            return
        self._logger.log(self._level if level is None else level, "%s", text)
        if level is None:
            self._tail.append(text)
        if self._file is not None:
            await self._file.add(text)

    async def drain(self, stream: asyncio.StreamReader) -> None:
        """Take note of every line until the stream ends."""
        line = bytearray()
        while chunk := await stream.read(_CHUNK_BYTES):
            first, *others = chunk.split(b"\n")
            _extend(line, first)
            for following in others:
                await self._add_bytes(line)
                line = bytearray()
                _extend(line, following)
        await self._add_bytes(line)

    async def close(self) -> None:
        """Wait until everything is written to the file."""
        if self._file is not None:
            await self._file.flush()

    async def _add_bytes(self, line: bytearray) -> None:
        await self.add(line.decode("utf-8", "replace"))


def _extend(line: bytearray, more: bytes) -> None:
    line += more[: _LONGEST_LINE_BYTES - len(line)]


class _LogFile:
    """A private file that is rotated when it grows large; one predecessor is kept. Written to in a worker thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[str] = []
        self._writing: asyncio.Future[None] | None = None
        self._is_broken = False

    async def add(self, line: str) -> None:
        if self._is_broken:
            return
        self._waiting.append(line)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write_all())
        if len(self._waiting) > _MOST_WAITING:
            await self.flush()

    async def flush(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write_all(self) -> None:
        while self._waiting:
            lines, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._write, "".join(f"{line}\n" for line in lines))
            except OSError as exc:
                self._is_broken = True
                self._waiting.clear()
                logger.warning("what the server prints cannot be written to %s: %s", self._path, exc.strerror)

    def _write(self, text: str) -> None:
        file = LineFile(self._path)
        try:
            is_full = file.size() + len(text) > _LARGEST_FILE and file.size() > 0
            if not is_full:
                file.append(text)
        finally:
            file.close()
        if is_full:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._write(text)
