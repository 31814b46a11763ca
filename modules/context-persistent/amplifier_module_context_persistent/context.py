"""The compacting context view over a file."""

import logging
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any, ClassVar

from amplifier_kit.config import ModuleConfig
from amplifier_kit.contexts.compacting import CompactingContext
from amplifier_kit.contexts.groups import missing_results
from amplifier_kit.messages.stored_messages import stamped
from amplifier_kit.types import Message

from .memory_files import load_memory_files
from .message_file import MessageFile
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
