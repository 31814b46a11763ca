"""Values in nested mappings, by the list of their keys."""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any


def get_nested(data: Any, path: Sequence[str], default: Any = None) -> Any:
    """Return the value at `path`, or `default` when a key is missing or something on the way is not a mapping."""
    for key in path:
        if not isinstance(data, Mapping) or key not in data:
            return default
        data = data[key]
    return data


def set_nested(data: MutableMapping[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the value at `path` in place; anything on the way that is not a mapping is replaced by one."""
    if not path:
        return
    for key in path[:-1]:
        inner = data.get(key)
        if not isinstance(inner, MutableMapping):
            inner = data[key] = {}
        data = inner
    data[path[-1]] = value
