"""What library calls return, on its way between processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel

from amplifier_core.utils import json_safe
from amplifierd.checkpoints import UndoResult
from amplifierd.session_store.record import SessionRecord


def plain(result: Any) -> Any:
    """Return what a call of the library returned, as plain data."""
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json")
    if hasattr(result, "to_json"):
        return json_safe(result.to_json())
    if is_dataclass(result) and not isinstance(result, type):
        return json_safe(asdict(result))
    return json_safe(result)


def _undone(value: Any) -> Any:
    names = ("restored", "foreign", "not_empty")
    return None if value is None else UndoResult(**{**value, **{name: tuple(value[name]) for name in names}})


def _as_it_is(value: Any) -> Any:
    return value


RETURNS: Mapping[str, Callable[[Any], Any]] = {
    "append_message": _as_it_is,
    "change_agent": SessionRecord.model_validate,
    "change_profile": SessionRecord.model_validate,
    "delete": _as_it_is,
    "delete_last_message": _as_it_is,
    "end": SessionRecord.model_validate,
    "mark_stale": SessionRecord.model_validate,
    "revoke_approval": _as_it_is,
    "rename": SessionRecord.model_validate,
    "tag": SessionRecord.model_validate,
    "truncate": SessionRecord.model_validate,
    "undo": _undone,
    "update": SessionRecord.model_validate,
}
"""The methods of `home.sessions` that are called on a session wherever it is, and how their results are made again."""
