"""How a profile is laid over its parent and what it excludes of it: the rules around the foundation's merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS
from amplifier_foundation.dicts import deep_merge, merge_module_lists
from amplifier_system.policy import merge_policies

from .document import ALL_AGENTS, NAMED_SECTIONS, module_identity

Sections = Mapping[str, Any]


def merge_sections(
    parent: Sections, child: Sections, *, replaced: Iterable[str] = (), may_widen: bool = False
) -> dict[str, Any]:
    """Return a parent's sections with a child's laid over them; neither is changed.

    `replaced` names sections of which the child inherits nothing. An explicit null removes an inherited section, or an
    inherited agent or context; anywhere deeper it is a value like any other. `may_widen` says that the child is the
    user's own, and may allow what the policy so far does not.

    Raises:
        ValueError: `session.policy` is not a policy.
    """
    inherited = {name: section for name, section in parent.items() if name not in replaced}
    merged = dict(inherited)
    for name, section in child.items():
        if section is None:
            merged.pop(name, None)
        elif name == "exclude":
            continue
        else:
            merged[name] = _merge_section(name, inherited.get(name), section)
    _merge_policy(merged, inherited if may_widen else parent, child, may_widen=may_widen)
    return merged


def _merge_policy(merged: dict[str, Any], inherited: Sections, child: Sections, *, may_widen: bool) -> None:
    old, new = ((part.get("session") or {}).get("policy") for part in (inherited, child))
    if new is not None and isinstance(merged.get("session"), Mapping):
        policy = merge_policies(old, new, may_widen=may_widen)
        merged["session"] = {**merged["session"], "policy": policy}
    elif not may_widen:
        _keep_policy(merged, inherited)


def _keep_policy(sections: dict[str, Any], inherited: Sections) -> None:
    """Let the policy outlive what was done to the section that holds it: without it, more would be allowed."""
    if policy := (inherited.get("session") or {}).get("policy"):
        sections["session"] = {**(sections.get("session") or {}), "policy": policy}


def _merge_section(name: str, parent: Any, child: Any) -> Any:
    if name == "session":
        return _merge_session(parent or {}, child)
    if name in MODULE_SECTIONS:
        return merge_module_lists(parent or [], child, lists="replace", identity=partial(module_identity, name))
    if name in NAMED_SECTIONS:
        named = {**(parent or {}), **child}
        return {key: value for key, value in named.items() if value is not None or ALL_AGENTS in named}
    if isinstance(parent, Mapping) and isinstance(child, Mapping):
        return deep_merge(parent, child, lists="replace")
    return child


def _merge_session(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    merged = deep_merge(parent, child, lists="replace")
    for member in SESSION_MEMBERS:
        old, new = parent.get(member), child.get(member)
        if isinstance(old, Mapping) and isinstance(new, Mapping) and new.get("module") not in (None, old.get("module")):
            merged[member] = dict(new)  # another module: nothing of the old one's settings is meant for it
    return merged


def exclude(
    inherited: Sections, rules: Mapping[str, Any], note: Callable[[str], None], *, may_widen: bool = False
) -> dict[str, Any]:
    """Return what is inherited without what `rules` exclude of it; `note` is called with what matched nothing.

    The policy can be excluded only by those who may widen it.
    """
    kept = dict(inherited)
    for name, rule in rules.items():
        if name not in kept:
            note(str(name))
        elif rule == "all":
            if name in MODULE_SECTIONS:
                kept[name] = []
            elif name in NAMED_SECTIONS:
                kept[name] = {}
            else:
                del kept[name]
        else:
            kept[name] = _exclude_from(kept[name], rule, str(name), note)
    if not may_widen:
        _keep_policy(kept, inherited)
    return kept


def _exclude_from(section: Any, rule: Any, location: str, note: Callable[[str], None]) -> Any:
    """Take entries (a list of names) or parts of entries (a mapping of such lists) out of a section."""
    if isinstance(rule, list):
        for name in rule:
            if not _has(section, name):
                note(f"{location}.{name}")
        return _without(section, rule)
    if isinstance(rule, Mapping) and isinstance(section, Mapping):
        kept = dict(section)
        for key, inner in rule.items():
            if key not in kept:
                note(f"{location}.{key}")
            elif inner == "all":
                del kept[key]
            else:
                kept[key] = _exclude_from(kept[key], inner, f"{location}.{key}", note)
        return kept
    note(location)
    return section


def _has(section: Any, name: Any) -> bool:
    if isinstance(section, Mapping):
        return name in section or ALL_AGENTS in section
    return isinstance(section, list) and any(name in _names_of(entry) for entry in section)


def _without(section: Any, names: list[Any]) -> Any:
    if isinstance(section, Mapping):
        kept = {key: value for key, value in section.items() if key not in names}
        return {**kept, **dict.fromkeys(map(str, names))} if ALL_AGENTS in kept else kept
    if isinstance(section, list):
        return [entry for entry in section if not any(name in names for name in _names_of(entry))]
    return section


def _names_of(entry: Any) -> list[Any]:
    return [entry.get("module"), entry.get("instance_id")] if isinstance(entry, Mapping) else [entry]
