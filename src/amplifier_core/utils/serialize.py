"""The one conversion of arbitrary values to JSON data, and the one rule for text that goes to a model."""

import logging
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from amplifier_core.boundary import Boundary

logger = logging.getLogger(__name__)

_CIRCULAR = "<circular>"
_UNSERIALIZABLE = "<unserializable>"
_MAX_DEPTH = 200  # json itself gives up on deeper nesting, at a depth that depends on the caller's stack

_ATOMS = frozenset({str, bool, type(None)})
_UNPRINTABLE = 10**sys.int_info.default_max_str_digits  # Python refuses to write an int of more digits
_AS_TEXT: tuple[tuple[type | tuple[type, ...], Callable[[Any], str]], ...] = (
    (datetime, datetime.isoformat),
    ((Decimal, UUID, PurePath, type, FunctionType, MethodType, ModuleType), str),
    (BaseException, lambda error: str(error) or type(error).__name__),
    ((bytes, bytearray, memoryview), lambda data: f"<bytes:{memoryview(data).nbytes}>"),
)
_UNSAFE_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def sanitize_text(text: str) -> str:
    """Return `text` without control characters and lone surrogates, which model APIs refuse."""
    return _UNSAFE_TEXT.sub("", text)


def json_safe(value: Any) -> Any:
    """Return `value` as data that `json.dumps` accepts, whatever it is.

    Numbers stay exact; everything else that JSON lacks becomes text, a list, or a dict of its fields or attributes.
    A cycle becomes `<circular>`; what cannot be read, or is nested too deeply, becomes `<unserializable>`. Never
    raises, takes one pass, and leaves `value` as it was.
    """
    return _convert(value, set(), None)


def _convert(value: Any, path: set[int], met: dict[int, Any] | None) -> Any:
    """Convert `value`, which lies inside the containers whose ids are in `path`.

    `met` is None in plain data. Inside an arbitrary object it holds the objects met there so far, by id: live objects
    refer to each other so densely that only a walk that enters each of them once ends in time.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    try:
        if kind is dict or kind is list:
            return _convert_structure(value, path, met)
        if isinstance(value, Enum):
            return _convert(value.value, path, met)
        if isinstance(value, str):
            return value
        if isinstance(value, (int, float)):
            return _number(value)
        for kinds, as_text in _AS_TEXT:
            if isinstance(value, kinds):
                return as_text(value)
        return _convert_structure(value, path, met)
    except Exception:  # noqa: BLE001 - any code of the value's class may run here, and a log line must not fail
        return _UNSERIALIZABLE


def _number(value: float) -> float | str:
    if isinstance(value, int):
        return value if -_UNPRINTABLE < value < _UNPRINTABLE else hex(value)
    return value if isfinite(value) else str(value)


def _convert_structure(value: Any, path: set[int], met: dict[int, Any] | None) -> Any:
    marker = id(value)
    if marker in path:
        return _CIRCULAR
    if len(path) >= _MAX_DEPTH:
        return _UNSERIALIZABLE
    path.add(marker)
    try:
        if isinstance(value, (list, tuple, set, frozenset)):
            return [item if type(item) in _ATOMS else _convert(item, path, met) for item in value]
        if isinstance(value, (dict, Mapping)):
            return {
                key if type(key) is str else _key(key): item if type(item) in _ATOMS else _convert(item, path, met)
                for key, item in value.items()
            }
        if isinstance(value, BaseModel):
            return _convert(_dump(value), path, met)
        if is_dataclass(value):
            return _convert({field.name: getattr(value, field.name) for field in fields(value)}, path, met)
        return _convert_object(value, path, met)
    finally:
        path.discard(marker)


def _key(key: Any) -> str:
    with Boundary(logger, "a key of type %s cannot be written: %s", type(key).__name__, level=logging.DEBUG):
        return str(key.value if isinstance(key, Enum) else key)
    return _UNSERIALIZABLE


def _dump(model: BaseModel) -> Any:
    with Boundary(logger, "%s cannot be dumped as a whole: %s", type(model).__name__, level=logging.DEBUG):
        return model.model_dump(mode="json", warnings=False)
    return dict(model)  # one field that cannot be dumped must not hide the others


def _convert_object(value: Any, path: set[int], met: dict[int, Any] | None) -> Any:
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return str(value)
    met = {} if met is None else met
    if id(value) in met:
        return _CIRCULAR
    met[id(value)] = value
    return _convert(dict(attributes), path, met)
