"""What changed from one plan to another, as data and as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifierd.documents.document import MODULE_SECTIONS, SESSION_MEMBERS, module_identity


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
class PlanDiff:
    """What changed; `str()` is the text for a person. Empty, and false, when nothing did."""

    added: tuple[tuple[str, str], ...] = ()
    removed: tuple[tuple[str, str], ...] = ()
    changed: tuple[ModuleChange, ...] = ()
    agents_added: tuple[str, ...] = ()
    agents_removed: tuple[str, ...] = ()
    agents_changed: tuple[str, ...] = ()
    session: tuple[ValueChange, ...] = field(default=())

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
        }

    def _lines(self) -> Iterator[str]:
        yield from (f"+ {section}: {module}" for section, module in self.added)
        yield from (f"- {section}: {module}" for section, module in self.removed)
        for change in self.changed:
            yield f"~ {change.section}: {change.module}"
            if change.version:
                yield f"    version {change.version[0] or 'none'} → {change.version[1] or 'none'}"
            yield from (f"    {_value_line('config', value)}" for value in change.config)
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
        session=tuple(_changes(_session_rest(before), _session_rest(after))),
    )


def _modules(plan: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    session = plan.get("session") or {}
    for member in SESSION_MEMBERS:
        entry = session.get(member)
        if isinstance(entry, str):
            entry = {"module": entry, "source": session.get(f"{member}_source"), **(plan.get(member) or {})}
        if isinstance(entry, Mapping) and entry.get("module"):
            yield (member, entry["module"]), entry
    for section in MODULE_SECTIONS:
        for entry in plan.get(section) or ():
            if (identity := module_identity(section, entry)) is not None:
                yield (section, identity), entry


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


def _session_rest(plan: Mapping[str, Any]) -> dict[str, Any]:
    ours = {key for member in SESSION_MEMBERS for key in (member, f"{member}_source")}
    return {key: value for key, value in (plan.get("session") or {}).items() if key not in ours}


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
