"""Event data as plain JSON data, and the texts in it: every event of every session comes by here."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from amplifier_core.utils import json_safe

_copy = TypeAdapter(dict[str, Any]).serializer.to_python
_EXACT = 1 << 64  # smaller whole numbers stay as they are
_MOST_CONTAINERS = 10_000  # more are a cycle, or so much that time does not count
_STAMP = "redaction"  # by which hooks-redaction says what it did


class PlainData(NamedTuple):
    """A copy that JSON can say, all texts in it, and the keys that have texts."""

    value: dict[str, Any]
    texts: list[str]
    keys: set[str]


def plain_data(data: dict[str, Any]) -> PlainData:
    """Return data as `json_safe` does; what is plain already, as nearly everything, is copied in one go."""
    found = _texts_and_keys(data)
    if found is not None:
        with suppress(ValueError):  # the stamp was not looked at
            return PlainData(_copy(data, mode="json"), *found)
    safe = json_safe(data)
    return PlainData(safe, *(_texts_and_keys(safe, most=None) or ([], set())))


def _texts_and_keys(data: dict[str, Any], most: int | None = _MOST_CONTAINERS) -> tuple[list[str], set[str]] | None:
    """Return all texts and the keys that have texts, None when something is not plain."""
    texts: list[str] = []
    keys: set[str] = set()
    left: list[Any] = [data]
    looked_at = 0
    while left:
        looked_at += 1
        if most is not None and looked_at > most:
            return None
        container = left.pop()
        if type(container) is list:
            is_plain = _look_at_list(container, texts, left)
        else:
            is_plain = _look_at_dict(container, texts, keys, left)
        if not is_plain:
            return None
    return texts, keys


def _look_at_dict(data: dict[Any, Any], texts: list[str], keys: set[str], left: list[Any]) -> bool:
    for key, item in data.items():
        if type(key) is not str:
            return False
        kind = type(item)
        if kind is str:
            keys.add(key)
            texts.append(item)
        elif kind is dict or kind is list:
            if item and key != _STAMP:
                left.append(item)
        elif not _is_plain(item, kind):
            return False
    return True


def _look_at_list(items: list[Any], texts: list[str], left: list[Any]) -> bool:
    for item in items:
        kind = type(item)
        if kind is str:
            texts.append(item)
        elif kind is dict or kind is list:
            left.append(item)
        elif not _is_plain(item, kind):
            return False
    return True


def _is_plain(item: Any, kind: type) -> bool:
    if item is None or kind is bool:
        return True
    return (kind is int and -_EXACT < item < _EXACT) or (kind is float and isfinite(item))
