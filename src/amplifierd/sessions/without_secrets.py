"""A session without what must not leave its home: keys and everything that looks like one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_core.utils import SENSITIVE_KEYS, redact_secrets
from amplifier_kit.redaction import mask_text, scrub
from amplifierd.session_store.protocol import StoredEvent
from amplifierd.session_store.record import SessionRecord

_RULES = ("secrets",)
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_FREE_TEXT = ("name", "metadata", "error_message", "error_details", "last_error", "load_warnings")


def masked(value: Any) -> Any:
    """Return plain data in which the values of secret names, and texts in the formats of secrets, are masked."""
    return scrub(redact_secrets(value), rules=_RULES)


def with_masked_data(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return events whose data is masked; what the store itself wrote about them stays as it is."""
    data = masked([event.get("data") for event in events])
    return [{**event, "data": shown} for event, shown in zip(events, data, strict=True)]


def shown_record(record: SessionRecord) -> dict[str, Any]:
    """Return the fields of a record, with masks where applications and errors put text of their own."""
    fields = record.model_dump(mode="json")
    fields |= {name: masked(fields[name]) for name in _FREE_TEXT}
    return {**fields, "settings_overrides": without_secrets(record.settings_overrides)}


def without_secrets(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan that can still be run: keys are left out rather than masked, so that others can take their place.

    What only names a variable, `${MY_KEY}`, stays.
    """
    return {key: _without(value) for key, value in plan.items() if not _is_secret(key, value)}


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    if isinstance(value, list):
        return [_without(item) for item in value]
    if isinstance(value, str) and not _VARIABLE.fullmatch(value):
        return mask_text(value, _RULES)
    return value


def _is_secret(key: Any, value: Any) -> bool:
    if not isinstance(value, str) or _VARIABLE.fullmatch(value):
        return False
    assignment = f'{key}="{value}"'
    return str(key).lower() in SENSITIVE_KEYS or mask_text(assignment, _RULES) != assignment
