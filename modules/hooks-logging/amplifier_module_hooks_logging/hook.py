"""The handler that writes events to their session's log."""

import fcntl
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from amplifier_core import HookResult
from amplifier_core.events import ALL_EVENTS, SESSION_END
from amplifier_kit.files import LineFile
from amplifier_kit.mounting import Handlers, declared_events, find_capability, project_slug, session_id_of, working_dir

from .records import RecordBuilder, encode, level_of, new_record
from .settings import LEVELS, MODULE_ID, LogSettings

logger = logging.getLogger(__name__)

_GO_ON = HookResult(action="continue")


class LoggingHook:
    """Logs the events of one coordinator."""

    def __init__(self, coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
        self.coordinator = coordinator
        self.settings = LogSettings.read(config)
        self._handlers = Handlers(MODULE_ID, coordinator, self.settings.enabled_events)
        self._records = RecordBuilder(self.settings, coordinator)
        self._paths = LogPaths(self.settings.template, coordinator)
        self._files = LogFiles(max_bytes=self.settings.max_bytes, backup_count=self.settings.backup_count)
        self._min_level = LEVELS.get(self.settings.level or "", logging.NOTSET)
        self._has_ended = False
        self._is_cleaned_up = False

    def register_known_events(self) -> int:
        """Register for the kernel's events and the configured ones; returns their number."""
        return self._register([*ALL_EVENTS, *self.settings.additional_events])

    async def register_declared_events(self) -> int:
        """Register for the events that modules announced, unless that is switched off; returns their number."""
        return self._register(await declared_events(self.coordinator)) if self.settings.auto_discover else 0

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        """Write the event's record; whatever goes wrong stays here."""
        if not self.settings.excluded.match(event):
            try:
                self._log(event, data if isinstance(data, dict) else {})
            except Exception:
                logger.exception("%s could not be logged", event)
        if event == SESSION_END:
            self._end()
        return _GO_ON

    def cleanup(self) -> None:
        """Unregister and close the files; `session:end` is still awaited when it has not come yet."""
        self._is_cleaned_up = True
        self._handlers.clear(keep=None if self._has_ended else SESSION_END)
        self._release()

    def _register(self, events: Iterable[str]) -> int:
        selected = [event for event in events if not self.settings.excluded.match(event)]
        return sum(
            self._handlers.register(event, self, priority=self.settings.priority, name=MODULE_ID) for event in selected
        )

    def _log(self, event: str, payload: dict[str, Any]) -> None:
        level = level_of(event, payload)
        if _number_of(level) < self._min_level:
            return
        session_id = payload.get("session_id") or session_id_of(self.coordinator)
        if not session_id:
            logger.debug("%s belongs to no session and is not logged", event)
            return
        line = encode(self._records.build(event, level, {**payload, "session_id": session_id}))
        self._files.append(self._paths.path_of(str(session_id)), line)
        if self.settings.to_console:
            logger.log(_number_of(level), "%s", line)

    def _end(self) -> None:
        self._has_ended = True
        if self._is_cleaned_up:
            self._handlers.clear()
            self._release()

    def _release(self) -> None:
        self._files.close()
        self._records.forget_messages()


def _number_of(level: str) -> int:
    """Return a level's number in Python's logging; one that is not ours passes every filter."""
    return LEVELS.get(level.upper(), logging.CRITICAL)


_MAX_OPEN = 32


class LogFiles:
    """Appends lines to log files and keeps the most recently used of them open.

    A line that cannot be written is counted; the next one that can is preceded by a record that tells how many are
    missing. No error of the disk gets out of here.
    """

    def __init__(self, *, max_bytes: int = 0, backup_count: int = 3) -> None:
        self._max_bytes = max_bytes
        self._backup_count = backup_count
        self._open: OrderedDict[Path, _LogFile] = OrderedDict()
        self._dropped: dict[Path, int] = {}

    def append(self, path: Path, line: str) -> None:
        """Append one line, without its line end, in one write."""
        dropped = self._dropped.get(path, 0)
        if dropped:
            record = new_record("logging:dropped", "WARNING") | {"data": {"count": dropped}}
            line = f"{encode(record)}\n{line}"
        try:
            self._write(path, line)
        except (OSError, ValueError) as exc:  # ValueError: a name that no file system takes
            self._close(path)
            self._dropped[path] = dropped + 1
            if not dropped:
                logger.error("%s cannot be written, records are dropped until it can: %s", path, exc)  # noqa: TRY400
            return
        if dropped:
            del self._dropped[path]
            logger.info("%s can be written again; %d records are missing", path, dropped)

    def close(self) -> None:
        """Close every file; a later append opens its file again."""
        for path in list(self._open):
            self._close(path)

    def _write(self, path: Path, line: str) -> None:
        file = self._opened(path)
        if self._max_bytes and file.would_exceed(self._max_bytes, line):
            file.rotate(self._backup_count)
            self._close(path)
            file = self._opened(path)
        file.append(line)

    def _opened(self, path: Path) -> "_LogFile":
        """Return the open file; one that was removed is created again."""
        file = self._open.get(path)
        if file is not None and not file.is_removed():
            self._open.move_to_end(path)
            return file
        self._close(path)
        while len(self._open) >= _MAX_OPEN:
            self._close(next(iter(self._open)))
        file = self._open[path] = _LogFile(path)
        return file

    def _close(self, path: Path) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()


class _LogFile:
    """One open log file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineFile(path)

    def append(self, line: str) -> None:
        self._lines.append(f"{line}\n")

    def is_removed(self) -> bool:
        return os.fstat(self._lines.fileno()).st_nlink == 0

    def would_exceed(self, max_bytes: int, line: str) -> bool:
        size = self._lines.size()
        return size > 0 and size + len(line.encode("utf-8", "replace")) + 1 > max_bytes

    def rotate(self, backup_count: int) -> None:
        """Move the file to `.1`, `.1` to `.2` and so on; the last one goes.

        If several processes want to, the first one does it: the lock belongs to the file that is moved, and
        a later caller finds another file in its place.
        """
        fcntl.flock(self._lines.fileno(), fcntl.LOCK_EX)
        if not self._is_in_place():
            return
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, backup_count + 1))]
        for newer, older in reversed(list(pairwise(names))):
            if newer.exists():
                newer.replace(older)

    def close(self) -> None:
        with suppress(OSError):  # what a remote disk says now is too late for the record it is about
            self._lines.close()

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._lines.fileno()))
        except FileNotFoundError:
            return False


_PLACEHOLDER = re.compile(r"\{(project|session_id)\}")
_UNSAFE = re.compile(r"[/\\\0\ud800-\udfff]|\.\.|\A\.\Z")  # what leads elsewhere, and what no file name can have
_MAX_REMEMBERED = 256


class LogPaths:
    """Fills the template in; a relative one is relative to the session's working directory."""

    def __init__(self, template: str, coordinator: Any) -> None:
        self._template = os.path.expanduser(template)  # noqa: PTH111 - a Path raises if there is no home directory
        self._coordinator = coordinator
        self._depends_on_directory = "{project}" in template or not os.path.isabs(self._template)  # noqa: PTH117
        self._paths: dict[tuple[object, str], Path] = {}

    def path_of(self, session_id: str) -> Path:
        """Return the log of a session, which never lies outside the template's directory."""
        key = (self._place(), session_id)
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= _MAX_REMEMBERED:
                self._paths.clear()
            path = self._paths[key] = self._fill_in(session_id)
        return path

    def _place(self) -> object:
        """Return what the working directory hangs on; asked for every record, and quicker than the directory."""
        if not self._depends_on_directory:
            return None
        declared = find_capability(self._coordinator, "session.working_dir")
        return declared if declared and isinstance(declared, str | Path) else os.getcwd()  # noqa: PTH109

    def _fill_in(self, session_id: str) -> Path:
        directory = working_dir(self._coordinator) if self._depends_on_directory else None
        values = {
            "session_id": _UNSAFE.sub("_", session_id),
            "project": project_slug(directory) if directory is not None else "",
        }
        path = Path(_PLACEHOLDER.sub(lambda found: values[found[1]], self._template))
        return directory / path if directory is not None else path
