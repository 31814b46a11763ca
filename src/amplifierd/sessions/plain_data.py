"""Event data as plain JSON data, and the texts in it: every event of every session comes by here."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from amplifier_core.utils import json_safe

_ATOMS = frozenset({bool, type(None)})
_TEXT = frozenset({str})
_EXACT = 1 << 64  # smaller whole numbers stay as they are
_DEEPEST = 32  # what is nested deeper may be a cycle


class PlainData(NamedTuple):
    """A copy that JSON can say, all texts in it, and the keys that have texts."""

    value: dict[str, Any]
    texts: list[str]
    keys: list[str]


class _NotPlainError(Exception):
    pass


def plain_data(data: Mapping[str, Any]) -> PlainData:
    """Return data as `json_safe` does; what is plain already, as nearly everything, is copied in one go."""
    plain = PlainData({}, [], [])
    try:
        _copy_dict(data, plain, _DEEPEST, plain.value)
    except _NotPlainError:
        plain = PlainData({}, [], [])
        _copy_dict(json_safe(data), plain, None, plain.value)
    return plain


def _copy_dict(data: Mapping[Any, Any], plain: PlainData, deepest: int | None, copy: dict[str, Any]) -> dict[str, Any]:
    copy.update(data)
    if not _TEXT.issuperset(map(type, copy)):
        raise _NotPlainError
    _, texts, keys = plain
    for key, item in data.items():
        kind = type(item)
        if kind is str:
            keys.append(key)
            texts.append(item)
        elif kind not in _ATOMS and not (kind is int and -_EXACT < item < _EXACT):
            copy[key] = _copied(item, kind, plain, deepest)
    return copy


def _copied(item: Any, kind: type, plain: PlainData, deepest: int | None) -> Any:
    """Return a copy of what is nested in data, a number as it is."""
    if kind is dict or kind is list:
        if deepest is not None:
            if not deepest:
                raise _NotPlainError
            deepest -= 1
        return _copy_dict(item, plain, deepest, {}) if kind is dict else _copy_list(item, plain, deepest)
    if deepest is None or (kind is int and -_EXACT < item < _EXACT) or (kind is float and isfinite(item)):
        return item
    raise _NotPlainError


def _copy_list(items: list[Any], plain: PlainData, deepest: int | None) -> list[Any]:
    if _TEXT.issuperset(map(type, items)):
        plain.texts.extend(items)
        return items[:]
    copy = []
    for item in items:
        kind = type(item)
        if kind is str:
            plain.texts.append(item)
        elif kind not in _ATOMS:
            item = _copied(item, kind, plain, deepest)
        copy.append(item)
    return copy
