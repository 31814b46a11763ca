"""The handler that writes events to their session's log."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from amplifier_core import HookResult
from amplifier_core.events import ALL_EVENTS, SESSION_END
from amplifier_kit.mounting import Handlers, declared_events, session_id_of

from .encoding import encode
from .log_files import LogFiles
from .log_paths import LogPaths
from .records import RecordBuilder, level_of
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
