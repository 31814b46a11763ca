"""What changed from one plan to another, as data and as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from typing import Any

from amplifier_core.mount_plan import MountPlan

Key = tuple[str, str]
"""Section and identity of a module."""


@dataclass(frozen=True)
class ValueChange:
    """A configuration value that was added (`before` is absent), removed (`after` is absent) or changed."""

    path: str
    before: Any = None
    after: Any = None
    is_added: bool = False
    is_removed: bool = False


@dataclass(frozen=True)
class ModuleChange:
    """One module that is in both plans and not the same."""

    section: str
    module: str
    version: tuple[str | None, str | None] | None = None
    config: tuple[ValueChange, ...] = ()


@dataclass(frozen=True)
class Move:
    """A module that is at another place of its list, counted from 1: the order in which modules are mounted."""

    section: str
    module: str
    before: int
    after: int


@dataclass(frozen=True)
class PlanDiff:
    """What changed; `str()` is the text for a person. Empty, and false, when nothing did."""

    added: tuple[tuple[str, str], ...] = ()
    removed: tuple[tuple[str, str], ...] = ()
    changed: tuple[ModuleChange, ...] = ()
    agents_added: tuple[str, ...] = ()
    agents_removed: tuple[str, ...] = ()
    agents_changed: tuple[str, ...] = ()
    session: tuple[ValueChange, ...] = field(default=())
    moved: tuple[Move, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__dataclass_fields__)

    def __str__(self) -> str:
        return "\n".join(self._lines()) or "no changes"

    def to_dict(self) -> dict[str, Any]:
        return {
            "added": [{"section": section, "module": module} for section, module in self.added],
            "removed": [{"section": section, "module": module} for section, module in self.removed],
            "changed": [
                {
                    "section": change.section,
                    "module": change.module,
                    "version": list(change.version) if change.version else None,
                    "config": [_value_dict(value) for value in change.config],
                }
                for change in self.changed
            ],
            "agents": {
                "added": list(self.agents_added),
                "removed": list(self.agents_removed),
                "changed": list(self.agents_changed),
            },
            "session": [_value_dict(value) for value in self.session],
            "moved": [asdict(move) for move in self.moved],
        }

    def _lines(self) -> Iterator[str]:
        yield from (f"+ {section}: {module}" for section, module in self.added)
        yield from (f"- {section}: {module}" for section, module in self.removed)
        for change in self.changed:
            yield f"~ {change.section}: {change.module}"
            if change.version:
                yield f"    version {change.version[0] or 'none'} → {change.version[1] or 'none'}"
            yield from (f"    {_value_line('config', value)}" for value in change.config)
        yield from (f"~ {each.section}: {each.module} moved from {each.before} to {each.after}" for each in self.moved)
        yield from (f"+ agent: {name}" for name in self.agents_added)
        yield from (f"- agent: {name}" for name in self.agents_removed)
        yield from (f"~ agent: {name}" for name in self.agents_changed)
        yield from (f"~ {_value_line('session', value)}" for value in self.session)


def diff_plans(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    versions: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> PlanDiff:
    """Compare two plans of the same form. `versions` are the versions of their modules by ID, where they are known;
    otherwise a module's `source` stands for its version.
    """
    old, new = dict(_modules(before)), dict(_modules(after))
    changed = []
    for key in old:
        if key in new:
            pair = (_version(old[key], versions[0]), _version(new[key], versions[1]))
            config = tuple(_changes(_settings(old[key]), _settings(new[key])))
            if config or pair[0] != pair[1]:
                changed.append(ModuleChange(key[0], key[1], pair if pair[0] != pair[1] else None, config))
    was, now = before.get("agents") or {}, after.get("agents") or {}
    return PlanDiff(
        added=tuple(key for key in new if key not in old),
        removed=tuple(key for key in old if key not in new),
        changed=tuple(changed),
        agents_added=tuple(name for name in now if name not in was),
        agents_removed=tuple(name for name in was if name not in now),
        agents_changed=tuple(name for name in now if name in was and now[name] != was[name]),
        moved=tuple(_find_moved(old, new)),
        session=tuple(_changes(MountPlan(before).session_settings, MountPlan(after).session_settings)),
    )


def _modules(plan: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    return (((entry.section, entry.identity), entry.spec) for entry in MountPlan(plan).entries())


def _find_moved(old: Iterable[Key], new: Iterable[Key]) -> Iterator[Move]:
    """Yield the modules that are in both plans, but at another place among those of their section."""
    before, after = _by_section(old), _by_section(new)
    for section, names in before.items():
        others = after.get(section, [])
        left, right = [name for name in names if name in others], [name for name in others if name in names]
        matched = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
        kept = {name for block in matched for name in left[block.a : block.a + block.size]}
        for name in right:
            if name not in kept:
                yield Move(section, name, names.index(name) + 1, others.index(name) + 1)


def _by_section(keys: Iterable[Key]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for section, name in keys:
        found.setdefault(section, []).append(name)
    return found


def _version(entry: Mapping[str, Any], versions: Mapping[str, str]) -> str | None:
    known = versions.get(entry["module"])
    return known if known is not None else entry.get("source")


def _settings(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **(entry.get("config") or {}),
        **{
            f"({key})": value
            for key, value in entry.items()
            if key not in ("module", "source", "config", "instance_id")
        },
    }


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[ValueChange]:
    for key in dict.fromkeys([*before, *after]):
        place = f"{path}.{key}" if path else str(key)
        if key not in after:
            yield ValueChange(place, before[key], is_removed=True)
        elif key not in before:
            yield ValueChange(place, None, after[key], is_added=True)
        elif isinstance(before[key], Mapping) and isinstance(after[key], Mapping):
            yield from _changes(before[key], after[key], place)
        elif before[key] != after[key]:
            yield ValueChange(place, before[key], after[key])


def _value_dict(change: ValueChange) -> dict[str, Any]:
    sides = {"before": change.before, "after": change.after}
    absent = "before" if change.is_added else "after" if change.is_removed else ""
    return {"path": change.path, **{side: value for side, value in sides.items() if side != absent}}


def _value_line(root: str, change: ValueChange) -> str:
    name = f"{root}.{change.path}"
    if change.is_added:
        return f"{name} = {_shown(change.after)}"
    return f"{name} removed" if change.is_removed else f"{name} {_shown(change.before)} → {_shown(change.after)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
