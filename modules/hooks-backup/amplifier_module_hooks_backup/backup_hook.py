"""The hook that keeps copies of the conversation."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from amplifier_core import HookResult
from amplifier_core.boundary import Boundary, emit_quietly
from amplifier_core.events import CONTEXT_PRE_COMPACT, ORCHESTRATOR_COMPLETE, SESSION_END
from amplifier_core.utils import json_safe
from amplifier_kit.config import ModuleConfig
from amplifier_kit.mounting import Handlers, find_mounted, hook_registry, session_id_of, working_dir

from .formats import EXTENSIONS, Message
from .store import Backup, BackupStore, Kind

logger = logging.getLogger(__name__)

MODULE_ID = "hooks-backup"
BACKUP_WRITTEN = "backup:written"
BACKUP_FAILED = "backup:failed"
EMITTED_EVENTS = (BACKUP_WRITTEN, BACKUP_FAILED)

_REASONS: dict[Kind, str] = {"compact": "pre_compact", "final": "session_end", "turn": "turn_end"}
_LARGE = 256 * 1024


class Snapshot(NamedTuple):
    """What tells one state of the history from the next, and where it is kept."""

    message_count: int
    last_message: Any
    path: Path

    def is_still(self, messages: list[Message]) -> bool:
        return (
            self.message_count == len(messages) and self.last_message == json_safe(messages[-1]) and self.path.is_file()
        )


class TranscriptBackupHook:
    """Writes the whole history to a file before it is compacted, when the session ends and, if asked to, every turn.

    It never stands in the way: what cannot be written is logged and announced, and the session goes on.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, *, coordinator: Any = None) -> None:
        module_config = ModuleConfig(MODULE_ID, config)
        self.backup_dir = Path(module_config.text("backup_dir", ".amplifier/transcripts"))
        self.per_turn = module_config.boolean("per_turn", False)
        self.enabled_events = module_config.strings("enabled_events", None)
        self._store = BackupStore(
            form=module_config.choice("format", "jsonl", tuple(EXTENSIONS)),
            include_metadata=module_config.boolean("include_metadata", True),
            compress=module_config.boolean("compress", False),
            max_backups=module_config.integer("max_backups", 0, minimum=0),
        )
        module_config.warn_unknown()
        self._coordinator = coordinator
        self._history: list[Message] = []
        self._snapshots: dict[Kind, Snapshot] = {}
        self._has_ended = False

    def register_on(self, handlers: Handlers) -> None:
        """Register the handlers."""
        for event, handler, priority, name in (
            (CONTEXT_PRE_COMPACT, self.handle_pre_compact, 10, "transcript-backup-compact"),
            (SESSION_END, self.handle_session_end, 100, "transcript-backup-end"),
            (ORCHESTRATOR_COMPLETE, self.handle_turn_end, 100, "transcript-backup-turn"),
        ):
            handlers.register(event, handler, priority=priority, name=name)

    async def handle_pre_compact(self, event: str, data: dict[str, Any]) -> HookResult:
        """Back up what is about to be compacted; later handlers find its path as `backup_location`."""
        path = await self._back_up("compact", event, data)
        if path is None or not isinstance(data, dict):
            return HookResult()
        return HookResult(action="modify", data={**data, "backup_location": str(path)})

    async def handle_turn_end(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep at hand what the context may be unable to tell when the session is cleaned up."""
        if not self._stored_messages():
            self._history = await self._find_messages({}) or self._history
        if self.per_turn:
            await self._back_up("turn", event, data)
        return HookResult()

    async def handle_session_end(self, event: str, data: dict[str, Any]) -> HookResult:
        """Write the final backup."""
        if not self._has_ended:
            self._has_ended = True
            await self._back_up("final", event, data)
        return HookResult()

    def finish(self) -> None:
        """Write the final backup of a session whose end was not announced; never raises."""
        if self._has_ended:
            return
        self._has_ended = True
        with Boundary(logger, "%s: the final backup could not be written: %s", MODULE_ID, level=logging.ERROR):
            messages = self._messages_at_hand()
            if messages:
                backup = self._prepare("final", messages, {})
                self._written("final", messages, *backup.write(self._directory()))

    async def _back_up(self, kind: Kind, event: str, data: dict[str, Any]) -> Path | None:
        """Return the file that holds the history as it is now, None when there is none."""
        data = data if isinstance(data, dict) else {}
        try:
            messages = await self._find_messages(data)
            if not messages:
                logger.warning("%s: no messages to back up on %s", MODULE_ID, event)
                return None
            snapshot = self._snapshots.get(kind)
            if snapshot is not None and snapshot.is_still(messages):
                return snapshot.path
            backup = self._prepare(kind, messages, data)
            directory = self._directory()
            is_large = len(backup.data) > _LARGE
            path, size = await asyncio.to_thread(backup.write, directory) if is_large else backup.write(directory)
        except Exception as exc:
            logger.exception("%s: no backup could be written on %s", MODULE_ID, event)
            await self._emit(BACKUP_FAILED, {"event": event, "error": str(exc)})
            return None
        self._written(kind, messages, path, size)
        written = {"path": str(path), "message_count": len(messages), "bytes": size, "reason": _REASONS[kind]}
        await self._emit(BACKUP_WRITTEN, written)
        return path

    async def _find_messages(self, data: dict[str, Any]) -> list[Message]:
        """Return the event's messages, else the context's, else those last seen."""
        given = data.get("messages")
        if given and isinstance(given, list):
            return list(given)
        context = find_mounted(self._coordinator, "context")
        if context is not None:
            with Boundary(logger, "%s: the context does not tell its messages: %s", MODULE_ID):
                return list(await context.get_messages() or [])
        return self._messages_at_hand()

    def _messages_at_hand(self) -> list[Message]:
        """Return the history without waiting for anything."""
        return self._stored_messages() or self._history

    def _stored_messages(self) -> list[Message]:
        messages = None
        with Boundary(logger, "%s: the context does not show its messages: %s", MODULE_ID):
            messages = getattr(find_mounted(self._coordinator, "context"), "messages", None)
        return list(messages) if isinstance(messages, list) else []

    def _prepare(self, kind: Kind, messages: list[Message], data: dict[str, Any]) -> Backup:
        metadata: dict[str, Any] = {"event": _REASONS[kind]}
        if kind == "final" and data.get("response") is not None:
            metadata["response"] = data["response"]
        session_id = session_id_of(self._coordinator) or data.get("session_id")
        return self._store.prepare(kind, messages, session_id if isinstance(session_id, str) else None, metadata)

    def _directory(self) -> Path:
        return working_dir(self._coordinator) / self.backup_dir.expanduser()

    def _written(self, kind: Kind, messages: list[Message], path: Path, size: int) -> None:
        self._snapshots[kind] = Snapshot(len(messages), json_safe(messages[-1]), path)
        logger.info("%s: %d messages (%d bytes) are kept in %s", MODULE_ID, len(messages), size, path)

    async def _emit(self, event: str, payload: dict[str, Any]) -> None:
        await emit_quietly(hook_registry(self._coordinator), event, payload)
