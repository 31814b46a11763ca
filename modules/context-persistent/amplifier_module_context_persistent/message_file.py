"""A conversation as JSON Lines: one message per line, in order, each written whole."""

import fcntl
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from amplifier_core.utils import json_safe
from amplifier_kit.files import LineFile, write_atomically
from amplifier_kit.messages.stored_messages import check_message, metadata_of
from amplifier_kit.types import Message

logger = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]  # inode, size, time of change

_held_here: set[tuple[int, int]] = set()  # device and inode of the files that this process owns


@dataclass(frozen=True, slots=True)
class Change:
    """What another process did to the file: messages that follow the known ones, or all there are now."""

    messages: list[Message]
    is_all: bool


class MessageFile:
    """The file of one conversation. What cannot be written is kept and written later, in order.

    It comes into being with the first message. Others may append to it too; one is its owner.
    """

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self.path = path
        self.is_held_by_another_process = False
        self._fsync = fsync
        self._file: LineFile | None = None
        self._is_owner = self._has_warned = False
        self._known: _Stamp | None = None
        self._read_to = 0  # bytes
        self._lines = 0
        self._unsaved: list[Message] = []
        self._replacement: list[Message] | None = None  # a whole history that is not written yet

    @property
    def unsaved(self) -> list[Message]:
        """The messages that are not in the file yet, in order."""
        return [*(self._replacement or ()), *self._unsaved]

    def load(self) -> list[Message]:
        """Return the messages in the file, none when there is no file. Raises `OSError` when it cannot be read."""
        try:
            self._known = _stamp(self.path.stat())
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        self._read_to = self._lines = 0
        messages = self._take(data)
        torn = data[self._read_to :]
        self._read_to = len(data)
        if torn:
            self._lines += 1
            last = _parse(torn)
            if last is not None:
                messages.append(last)
            elif torn.strip():
                logger.warning("%s: line %d is torn and is skipped", self.path, self._lines)
        return messages

    def find_change(self, history: list[Message]) -> Change | None:
        """Return what another process did to the file; nothing is read unless there is a sign of that.

        When the file is gone, `history` is written again at the next opportunity.
        """
        if self._replacement is not None:
            return None
        try:
            status = self.path.stat()
        except OSError as exc:
            if isinstance(exc, FileNotFoundError | NotADirectoryError) and self._known is not None:
                logger.warning("%s is gone; it is written again with the next message", self.path)
                self.close()
                self._known, self._replacement, self._unsaved = None, list(history), []
            return None
        known, self._known = self._known, _stamp(status)
        if self._known == known:
            return None
        self.close()  # it may be another file now, or end in a torn line
        if known is None or known[0] != status.st_ino or status.st_size <= self._read_to:
            return Change(self.load(), is_all=True)
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            return Change(self._take(file.read()), is_all=False)

    def take_possession(self) -> None:
        """Become the owner of the file if it exists and has none. Raises `OSError` when it cannot be written."""
        if self.path.exists():
            self._open()

    def append(self, message: Message) -> None:
        """Write one more message after all that are unsaved. Raises `OSError`; the message is unsaved then."""
        self._unsaved.append(message)
        self.save()

    def replace(self, messages: list[Message]) -> None:
        """Write a whole history in place of what is there. Raises `OSError`; all of it is unsaved then."""
        self._replacement, self._unsaved = list(messages), []
        self.save()

    def save(self) -> None:
        """Write what is unsaved. Raises `OSError`."""
        if self._replacement is not None:
            lines = [_line(message) for message in self.unsaved]
            data = "".join(lines).encode("utf-8", "replace")
            write_atomically(self.path, data, private=True)
            self._replacement, self._unsaved = None, []
            self._lines = len(lines)
            self.close()
            self._note_size(self._open(), len(data))
        while self._unsaved:
            file = self._open()
            written = file.append(_line(self._unsaved[0]))
            del self._unsaved[0]
            self._lines += 1
            self._note_size(file, self._read_to + written)

    def close(self) -> None:
        """Close the file; what is written later opens it again."""
        if self._file is not None:
            if self._is_owner:
                _held_here.discard(_identity(self._file))
            self._file.close()
            self._file, self._is_owner = None, False

    def _open(self) -> LineFile:
        if self._file is None:
            self._file = LineFile(self.path, fsync=self._fsync)
            self._lock(self._file)
        return self._file

    def _lock(self, file: LineFile) -> None:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.is_held_by_another_process = _identity(file) not in _held_here
            if not self._has_warned:
                self._has_warned = True
                logger.warning("%s is in use elsewhere; the messages of both are appended to it", self.path)
        else:
            self._is_owner = True
            _held_here.add(_identity(file))

    def _note_size(self, file: LineFile, expected: int) -> None:
        status = os.fstat(file.fileno())
        # Another size means that another process wrote at the same moment: then all is read again.
        self._known = _stamp(status) if status.st_size == expected else None
        self._read_to = expected

    def _take(self, data: bytes) -> list[Message]:
        """Return the messages in the whole lines of `data`, which follows what was read before."""
        messages = []
        end = data.rfind(b"\n") + 1
        for line in data[:end].split(b"\n")[:-1]:
            self._lines += 1
            message = _parse(line)
            if message is not None:
                messages.append(message)
            elif line.strip():
                logger.warning("%s: line %d is not a message and is skipped", self.path, self._lines)
        self._read_to += end
        return messages


def _parse(line: bytes) -> Message | None:
    try:
        message = check_message(json.loads(line))
    except (ValueError, RecursionError):
        return None
    if "timestamp" in message and metadata_of(message).get("timestamp") is None:
        message["metadata"] = {**metadata_of(message), "timestamp": message["timestamp"]}
    return message


def _line(message: Message) -> str:
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(json_safe(message), ensure_ascii=False)
    return f"{text}\n"


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _identity(file: LineFile) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino
