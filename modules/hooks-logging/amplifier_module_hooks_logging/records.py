"""Event → record: what stands in a line of the log."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.events import PROVIDER_REQUEST, SESSION_RESUME, SESSION_START, TOOL_POST
from amplifier_core.utils import json_safe, redact_secrets
from amplifier_kit.log_views import STAMP
from amplifier_kit.mounting import find_capability

from .message_chain import MessageChain
from .settings import LogSettings

logger = logging.getLogger(__name__)

Record = dict[str, Any]

PROMOTED = (
    STAMP,
    "status",
    "duration_ms",
    "module",
    "component",
    "error",
    "request_id",
    "span_id",
    "parent_span_id",
    "session_id",
)

_SCHEMA = {"name": "amplifier.log", "ver": "1.0.0"}
_COVERED = frozenset(PROMOTED) - {"error"}
_OUTPUTS = frozenset({"result", "tool_result"})
_CARRIES_PLAN = frozenset({SESSION_START, SESSION_RESUME})


def new_record(event: str, level: str, timestamp: Any = None) -> Record:
    """Return the part that all records have; without a timestamp it is now."""
    ts = timestamp or datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"ts": ts, "lvl": level, "schema": _SCHEMA, "event": event}


def level_of(event: str, payload: Mapping[str, Any]) -> str:
    """Return the level an event gives itself, else INFO; an event about an error is an ERROR, unless it is DEBUG."""
    level = str(payload.get("lvl") or "INFO")
    tells_of_error = payload.get("status") == "error" or payload.get("error") or "error" in event
    return "ERROR" if tells_of_error and level.upper() != "DEBUG" else level


class RecordBuilder:
    """Builds the records of one mount."""

    def __init__(self, settings: LogSettings, coordinator: Any) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._chain = MessageChain()

    def build(self, event: str, level: str, payload: dict[str, Any]) -> Record:
        """Return the record of an event; the payload is used up, its values are not."""
        payload.pop("lvl", None)
        record = new_record(event, level, payload.pop("timestamp", None))
        rest = self._scrubbed(self._reduced(event, payload))
        for key in PROMOTED:
            if key in rest:
                record[key] = rest.pop(key)
        if rest:
            record["data"] = rest
        return record

    def forget_messages(self) -> None:
        """Let go of the messages that were summarised."""
        self._chain = MessageChain()

    def _reduced(self, event: str, payload: Record) -> Record:
        """Take out what a log has no use for."""
        if self._settings.strip_raw:
            payload.pop("raw", None)
        if "tool_result" in payload and "result" in payload and _same(payload["tool_result"], payload["result"]):
            del payload["tool_result"]
        if event == TOOL_POST and not self._settings.tool_output:
            payload = {key: _without_output(value) if key in _OUTPUTS else value for key, value in payload.items()}
        if event in _CARRIES_PLAN and "config" in payload:
            payload["config"] = redact_secrets(json_safe(payload["config"]))
        if event == PROVIDER_REQUEST and not self._settings.writes_messages:
            messages = payload.get("messages")
            if isinstance(messages, list):
                payload["messages"] = self._chain.summary(messages)
        return payload

    def _scrubbed(self, payload: Record) -> Record:
        """Have masked what hooks-redaction, where it is mounted, left alone."""
        skipped = _skipped(payload.get(STAMP))
        scrub = find_capability(self._coordinator, "redaction.scrub") if skipped != [] else None
        if not callable(scrub):
            return payload
        uncovered = [key for key in payload if (key not in _COVERED if skipped is None else key in skipped)]
        covered = {key: value for key, value in payload.items() if key not in uncovered}
        try:
            scrubbed = scrub({key: payload[key] for key in uncovered})
            if isinstance(scrubbed, dict):
                return covered | scrubbed
            problem = f"returned a {type(scrubbed).__name__}"
        except Exception as exc:  # noqa: BLE001 - its text and traceback could show what must not be shown
            problem = f"failed with {type(exc).__name__}"
        logger.warning("redaction.scrub %s; the payload is left out", problem)
        return covered | {"redaction_error": True}


def _without_output(result: Any) -> dict[str, Any]:
    """Return of a tool's result whether it succeeded."""
    success = result.get("success") if isinstance(result, Mapping) else getattr(result, "success", None)
    return {"success": success}


def _skipped(stamp: Any) -> list[str] | None:
    """Return the keys that a stamp of hooks-redaction excepts, None when there is no valid stamp."""
    if not isinstance(stamp, dict) or stamp.get("applied") is not True:
        return None
    skipped = stamp.get("skipped")
    return skipped if isinstance(skipped, list) else []


def _same(one: Any, other: Any) -> bool:
    with Boundary(logger, "values of type %s cannot be compared: %s", type(one).__name__, level=logging.DEBUG):
        return one is other or bool(one == other)
    return False
