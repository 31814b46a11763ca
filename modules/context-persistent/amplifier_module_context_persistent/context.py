"""The compacting context view over a file."""

import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any, ClassVar

from amplifier_core.utils import json_safe
from amplifier_kit.config import ModuleConfig
from amplifier_kit.contexts.compacting import CompactingContext
from amplifier_kit.contexts.groups import missing_results
from amplifier_kit.files import LineFile, write_atomically
from amplifier_kit.messages.stored_messages import check_message, metadata_of, stamped
from amplifier_kit.types import Message

from .settings import PersistenceSettings

logger = logging.getLogger(__name__)

MODULE_ID = "context-persistent"
CONTEXT_PERSIST_ERROR = "context:persist_error"

_PERSISTENCE = frozenset({"transcript_path", "memory_files", "fsync", "truncate_boundary"})


class PersistentContextManager(CompactingContext):
    """Every message is in the file before `add_message` returns; a conversation that is there already goes on.

    `initialize` comes first. Without a `transcript_path` the conversation is in memory only. Relative paths start at
    `working_dir`. When the file cannot be written, messages are kept and written later.
    """

    module_id: ClassVar[str] = MODULE_ID
    default_protected_recent: ClassVar[float] = 0.10

    def __init__(self, *, working_dir: Path | str | None = None, **settings: Any) -> None:
        super().__init__(**{key: value for key, value in settings.items() if key not in _PERSISTENCE})
        persistence = PersistenceSettings(ModuleConfig(MODULE_ID, {key: settings.get(key) for key in _PERSISTENCE}))
        self.working_dir = Path(working_dir) if working_dir is not None else Path.cwd()
        self.memory_files = persistence.memory_files
        self.fsync = persistence.fsync
        self.transcript_path = persistence.transcript_path
        self.is_resumed = False
        self._file: MessageFile | None = None
        if self.transcript_path is not None:
            self.transcript_path = self.working_dir / self.transcript_path.expanduser()
            self._file = MessageFile(self.transcript_path, fsync=self.fsync)
        self._failure: OSError | None = None
        self._is_failing = False

    async def initialize(self) -> None:
        """Take up the conversation in the file, or begin one with the memory files.

        Raises `RuntimeError` when the memory files exceed `max_tokens`, `OSError` when the file cannot be read.
        """
        with self.lock:
            if self._file is not None:
                self.messages = self._file.load()
                self._try(self._file.take_possession)
            self.is_resumed = bool(self.messages)
            if self.is_resumed:
                logger.info("%s: resumed with %d messages from %s", MODULE_ID, len(self.messages), self.transcript_path)
                self._complete_tool_calls()
            else:
                self._load_memory_files()
        await self._report_failure()

    async def add_message(self, message: Message) -> None:
        """Keep a copy of `message` and write it down. Raises `ValueError` unless it is a dict with a role."""
        await super().add_message(message)
        await self._report_failure()

    async def set_messages(self, messages: list[Message]) -> None:
        """Replace the history, except when it came from the file, which knows more than an application's transcript.

        To replace it nevertheless, call `clear` first.
        """
        if self.is_resumed:
            logger.info(
                "%s: %d messages are not taken over, the %d from %s are complete",
                MODULE_ID,
                len(messages),
                len(self.messages),
                self.transcript_path,
            )
            return
        await super().set_messages(messages)
        await self._report_failure()

    async def clear(self) -> None:
        """Forget the history, also in the file; after this `set_messages` applies again."""
        await super().clear()
        self.is_resumed = False
        await self._report_failure()

    def refresh(self) -> None:
        """Take in what others wrote to the file."""
        if self._file is None:
            return
        try:
            change = self._file.find_change(self.messages)
        except OSError:
            logger.warning("%s: %s cannot be read", MODULE_ID, self.transcript_path, exc_info=True)
            return
        if change is None:
            return
        end = len(self.messages) - len(self._file.unsaved)
        start, messages = end, change.messages
        if change.is_all:
            start = sum(1 for _ in takewhile(bool, map(eq, self.messages[:end], messages)))
            messages = messages[start:]
        if messages or start < end:
            self.messages[start:end] = messages

    def record(self, message: Message) -> None:
        """Write a message down."""
        if self._file is not None:
            self._try(partial(self._file.append, message))

    def rewrite(self, messages: list[Message]) -> None:
        """Write a whole history down in place of the present one."""
        if self._file is not None:
            self._try(partial(self._file.replace, messages))

    def close(self) -> None:
        """Write what is unsaved, if that is possible now, and close the file."""
        with self.lock:
            if self._file is None:
                return
            self._try(self._file.save)
            if unsaved := len(self._file.unsaved):
                logger.error("%s: %d messages are lost, %s cannot be written", MODULE_ID, unsaved, self.transcript_path)
            self._file.close()

    def _try(self, write: Callable[[], None]) -> None:
        """Write, or take note of why that is not possible; the first failure in a row is logged."""
        try:
            write()
        except OSError as exc:
            self._failure = exc
            if not self._is_failing:
                logger.exception("%s: %s cannot be written; messages are kept", MODULE_ID, self.transcript_path)
            self._is_failing = True
        else:
            self._is_failing = False

    async def _report_failure(self) -> None:
        with self.lock:
            failure, self._failure = self._failure, None
            unsaved = len(self._file.unsaved) if self._file is not None else 0
        if failure is not None:
            error = {"type": type(failure).__name__, "msg": str(failure)}
            path = str(self.transcript_path)
            await self.emit(CONTEXT_PERSIST_ERROR, {"path": path, "error": error, "pending": unsaved})

    def _complete_tool_calls(self) -> None:
        """Answer the calls at the end whose results a crash prevented."""
        if self._file is not None and self._file.is_held_by_another_process:
            return  # they may be running there
        for message in missing_results(self.messages):
            stored = stamped(message)
            self.record(stored)
            self.messages.append(stored)

    def _load_memory_files(self) -> None:
        loaded = load_memory_files(self.memory_files, self.working_dir)
        estimates = {path: self._estimate_tokens([message]) for path, message in loaded.items()}
        total = sum(estimates.values())
        if total > self.max_tokens:
            files = ", ".join(f"{path} about {tokens}" for path, tokens in estimates.items())
            raise RuntimeError(
                f"{MODULE_ID}: the memory files take about {total} tokens, max_tokens is {self.max_tokens}: {files}\n"
                "  fix: shorten them, name fewer, or raise max_tokens"
            )
        for message in loaded.values():
            self.record(message)
            self.messages.append(message)


def load_memory_files(paths: Iterable[Path], working_dir: Path) -> dict[Path, Message]:
    """Return the messages by file, in order; what cannot be read is logged and left out."""
    loaded: dict[Path, Message] = {}
    for given in paths:
        path = working_dir / given.expanduser()
        if not path.is_file():
            logger.warning("memory file %s is %s; it is skipped", path, "no file" if path.exists() else "not there")
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            logger.exception("memory file %s cannot be read; it is skipped", path)
            continue
        if not text.strip():
            logger.debug("memory file %s is empty; it is skipped", path)
            continue
        loaded[path] = stamped({"role": "system", "content": f"[Context from {path.name}]\n\n{text}"})
    return loaded


# A conversation as JSON Lines: one message per line, in order, each written whole.


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
