"""The one merge: bundles, profiles, overlays and agents are all put together by it.

Two parameters say how. `lists` is what becomes of an ordinary list that both sides have: `"concat"` (bundles) puts the
parent's items before the child's, without repetitions; `"replace"` (profiles, overlays, agents) takes the child's.
`identity` gives the key of an entry in a list of modules; entries with equal keys are one module, and are merged.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

Lists = Literal["concat", "replace"]
Identity = Callable[[Mapping[str, Any]], str | None]


def module_identity(entry: Mapping[str, Any]) -> str | None:
    """Return the key of a module entry in a bundle: its `id`, else its `module`, else `None`."""
    key: str | None = entry.get("id") or entry.get("module") or None
    return key


def deep_merge(parent: Mapping[str, Any], child: Mapping[str, Any], *, lists: Lists = "concat") -> dict[str, Any]:
    """Return a new dict in which the child's values win; mappings are merged key by key, lists as `lists` says.

    Neither side is changed. Values that only one side has are shared with it, not copied.
    """
    merged = dict(parent)
    for key, value in child.items():
        if key not in merged:
            merged[key] = value
            continue
        existing = merged[key]
        if isinstance(existing, Mapping) and isinstance(value, Mapping):
            merged[key] = deep_merge(existing, value, lists=lists)
        elif lists == "concat" and isinstance(existing, list) and isinstance(value, list):
            merged[key] = _without_repetitions([*existing, *value])
        else:
            merged[key] = value
    return merged


def merge_module_lists(
    parent: Iterable[Mapping[str, Any]],
    child: Iterable[Mapping[str, Any]],
    *,
    lists: Lists = "concat",
    identity: Identity = module_identity,
) -> list[dict[str, Any]]:
    """Return the parent's entries, each merged with the child's entry of the same identity, then the child's new ones.

    An entry without identity is left out. Of two equal entries in the parent the later one counts, in the earlier
    one's place; equal entries in the child are merged one after the other.

    Raises:
        TypeError: an entry is not a mapping.
    """
    merged: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(parent):
        if (key := identity(_checked(entry, index))) is not None:
            merged[key] = dict(entry)
    for index, entry in enumerate(child):
        if (key := identity(_checked(entry, index))) is not None:
            merged[key] = deep_merge(merged[key], entry, lists=lists) if key in merged else dict(entry)
    return list(merged.values())


def _checked(entry: Any, index: int) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise TypeError(
            f"Malformed module config at index {index}: expected dict with 'module' key, "
            f"got {type(entry).__name__}: {entry!r}"
        )
    return entry


def _without_repetitions(items: list[Any]) -> list[Any]:
    seen: set[tuple[type, Any]] = set()
    kept = []
    for item in items:
        try:
            key = (type(item), item if _is_primitive(item) else json.dumps(item, sort_keys=True, default=str))
        except (TypeError, ValueError):
            kept.append(item)  # nothing to compare it by
            continue
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept


def _is_primitive(item: Any) -> bool:
    return item is None or isinstance(item, str | int | float | bool)
