"""Event → record: what stands in a line of the log."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.events import PROVIDER_REQUEST, SESSION_RESUME, SESSION_START, TOOL_POST
from amplifier_core.utils import json_safe, redact_secrets
from amplifier_kit.mounting import find_capability
from amplifier_kit.types import STAMP

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


_MIN_REMEMBERED = 1024


class MessageChain:
    """Summarises the messages of successive requests, which mostly are those of the last one and a few more.

    The hash is a chain over the digests of the single messages. A message is serialized once: its digest is remembered
    for the object, and the chain goes on where that of the last request ended.
    """

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._link = b""
        self._digests: dict[int, tuple[Any, bytes]] = {}  # the object is kept, so that its id stays its own

    def summary(self, messages: list[Any]) -> dict[str, Any]:
        """Return the number of messages and their hash."""
        if not self._continues(messages):
            self._messages, self._link = [], b""
        for message in messages[len(self._messages) :]:
            self._link = sha256(self._link + self._digest(message)).digest()
            self._messages.append(message)
        if len(self._digests) > max(_MIN_REMEMBERED, 2 * len(messages)):
            self._digests = {id(message): (message, self._digest(message)) for message in messages}
        return {"count": len(messages), "hash": self._link.hex()}

    def _continues(self, messages: list[Any]) -> bool:
        with Boundary(logger, "messages of two requests cannot be compared: %s", level=logging.DEBUG):
            return messages[: len(self._messages)] == self._messages  # mostly the same objects, never looked into
        return False

    def _digest(self, message: Any) -> bytes:
        known = self._digests.get(id(message))
        if known is None:
            text = encode_canonical(message).encode("utf-8", "surrogatepass")
            known = self._digests[id(message)] = (message, sha256(text).digest())
        return known[1]


# Values as JSON text, whatever they are.


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_safe)
_canonical = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_safe, sort_keys=True)


def encode(value: Any) -> str:
    """Return `value` as one line of JSON."""
    return _encode(_encoder, value)


def encode_canonical(value: Any) -> str:
    """Return `value` as JSON that does not depend on the order of keys."""
    return _encode(_canonical, value)


def _encode(encoder: json.JSONEncoder, value: Any) -> str:
    """Encode `value`; most is JSON data already, and converting all of it first would cost more than the rest."""
    try:
        return encoder.encode(value)
    except (TypeError, ValueError, RecursionError):  # odd keys, cycles, numbers JSON does not have, deep nesting
        return encoder.encode(json_safe(value))
