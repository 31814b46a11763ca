"""The hook that keeps copies of the conversation."""

import asyncio
import gzip
import itertools
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from amplifier_core import HookResult
from amplifier_core.boundary import Boundary, emit_quietly
from amplifier_core.events import CONTEXT_PRE_COMPACT, ORCHESTRATOR_COMPLETE, SESSION_END
from amplifier_core.utils import json_safe
from amplifier_kit.config import ModuleConfig
from amplifier_kit.files import create_atomically
from amplifier_kit.mounting import Handlers, find_mounted, hook_registry, session_id_of, working_dir

# The three forms of a backup, and the way back from two of them.


Message = dict[str, Any]
Metadata = dict[str, Any]

EXTENSIONS = {"jsonl": "jsonl", "json": "json", "text": "txt"}


def encode(form: str, messages: list[Message], metadata: Metadata | None) -> bytes:
    """Return a transcript in one of the forms; without metadata none is written."""
    safe_metadata = None if metadata is None else json_safe(metadata)
    return _ENCODERS[form](json_safe(messages), safe_metadata)


def read_backup(path: Path | str) -> dict[str, Any]:
    """Return the `metadata` and `messages` of a `jsonl` or `json` backup, compressed or not.

    The messages can be handed to a context manager's `set_messages`. Raises `ValueError` for a file that is not such a
    backup (text cannot be read back) or is damaged, `OSError` for one that cannot be read.
    """
    path = Path(path)
    decode = _DECODERS.get(Path(path.name.removesuffix(".gz")).suffix)
    if decode is None:
        raise ValueError(
            f"{path} is not a backup that can be read: only .jsonl and .json files can, and those with .gz"
        )
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        metadata, messages = decode(text)
    except (ValueError, TypeError, EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise ValueError(f"{path} is damaged: {exc}") from exc
    return {"metadata": metadata, "messages": messages}


def _dumps(value: Any, *, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair can only be kept in its escaped form
        return json.dumps(value, indent=indent)
    return text


def _to_jsonl(messages: list[Message], metadata: Metadata | None) -> bytes:
    head = [] if metadata is None else [{"metadata": metadata}]
    return "".join(f"{_dumps(line)}\n" for line in (*head, *messages)).encode()


def _to_json(messages: list[Message], metadata: Metadata | None) -> bytes:
    tail = {} if metadata is None else {"metadata": metadata}
    return f"{_dumps({'messages': messages, **tail}, indent=2)}\n".encode()


def _to_text(messages: list[Message], metadata: Metadata | None) -> bytes:
    paragraphs = (f"{message.get('role', 'unknown')}: {_spoken(message)}" for message in messages)
    return "".join(f"{paragraph}\n\n" for paragraph in paragraphs).encode("utf-8", "replace")


def _spoken(message: Message) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    spoken = [
        str(block["text"]) if isinstance(block, Mapping) and "text" in block else _dumps(block) for block in blocks
    ]
    spoken += [f"[calls {_dumps(call)}]" for call in message.get("tool_calls") or []]
    return "\n".join(part for part in spoken if part)


def _from_jsonl(text: str) -> tuple[Metadata, list[Message]]:
    lines = [_mapping(json.loads(line)) for line in text.split("\n") if line.strip()]
    has_metadata = bool(lines) and lines[0].keys() == {"metadata"}
    return _mapping(lines.pop(0)["metadata"]) if has_metadata else {}, lines


def _from_json(text: str) -> tuple[Metadata, list[Message]]:
    backup = _mapping(json.loads(text))
    messages = backup.get("messages")
    if not isinstance(messages, list):
        raise TypeError("it has no list of messages")
    return _mapping(backup.get("metadata", {})), [_mapping(message) for message in messages]


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"an object was expected, not {type(value).__name__}")
    return value


_ENCODERS: dict[str, Callable[[list[Message], Metadata | None], bytes]] = {
    "jsonl": _to_jsonl,
    "json": _to_json,
    "text": _to_text,
}
_DECODERS: dict[str, Callable[[str], tuple[Metadata, list[Message]]]] = {".jsonl": _from_jsonl, ".json": _from_json}

logger = logging.getLogger(__name__)

# The directory that holds a session's backups.


Kind = Literal["compact", "final", "turn"]

_LONGEST_ID = 100
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class BackupStore:
    """Writes backups that never overwrite each other, and keeps the newest of them."""

    form: str
    include_metadata: bool
    compress: bool
    max_backups: int

    def prepare(
        self, kind: Kind, messages: list[Message], session_id: str | None, metadata: dict[str, Any]
    ) -> "Backup":
        """Return a backup of the messages as they are now, to be written when it suits."""
        stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
        described = {**metadata, "timestamp": stamp, "message_count": len(messages), "session_id": session_id}
        data = encode(self.form, messages, described if self.include_metadata else None)
        extension = EXTENSIONS[self.form] + (".gz" if self.compress else "")
        return Backup(self, kind, stamp, _fit_for_name(session_id), extension, data)


@dataclass(frozen=True, slots=True)
class Backup:
    """A transcript on its way to the disk."""

    store: BackupStore
    kind: Kind
    stamp: str
    session: str
    extension: str
    data: bytes

    def write(self, directory: Path) -> tuple[Path, int]:
        """Write the file as a whole, remove backups beyond the number to keep; returns its path and size.

        Raises `OSError`.
        """
        data = gzip.compress(self.data) if self.store.compress else self.data
        path = create_atomically(self._names(directory), data)
        if self.store.max_backups:
            self._prune(directory)
        return path, len(data)

    def _names(self, directory: Path) -> Iterator[Path]:
        """Yield the names it may have: numbers go up even where pruning has made room below."""
        stem = f"transcript_{self.kind}_{self.stamp}{self.session}"
        siblings = self._siblings(directory) if self.store.max_backups and directory.is_dir() else []
        highest = max((number for (stamp, number), _ in siblings if stamp == self.stamp), default=0)
        for number in itertools.count(highest + 1):
            yield directory / f"{stem}{f'_{number}' if number > 1 else ''}.{self.extension}"

    def _prune(self, directory: Path) -> None:
        try:
            for _, older in self._siblings(directory)[: -self.store.max_backups]:
                older.unlink(missing_ok=True)
        except OSError:
            logger.warning("older backups in %s could not be removed", directory, exc_info=True)

    def _siblings(self, directory: Path) -> list[tuple[tuple[str, int], Path]]:
        """Return the backups of the same session and kind, oldest first."""
        named = re.compile(
            rf"transcript_{self.kind}_(\d{{8}}_\d{{6}}){re.escape(self.session)}(?:_(\d+))?\.\w+(?:\.gz)?"
        )
        found = ((named.fullmatch(path.name), path) for path in directory.iterdir())
        return sorted(((match[1], int(match[2] or 1)), path) for match, path in found if match)


def _fit_for_name(session_id: str | None) -> str:
    """Return the part of a file name that stands for the session; it never ends like a number of a collision."""
    if not session_id:
        return ""
    name = _UNFIT.sub("-", session_id)[:_LONGEST_ID]
    return "_" + re.sub(r"_(\d+)$", r"-\1", name)


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
