"""A profile together with its ancestors and the user's overlay: what is compiled and planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS, MountPlan
from amplifier_foundation.dicts import deep_merge, merge_module_lists
from amplifier_foundation.provenance import Layer, explain
from amplifier_system.permission_levels import chosen_level, narrowest
from amplifier_system.policy import merge_policies
from amplifier_system.urls import shown
from amplifierd.exceptions import ProfileCircularInheritanceError, ProfileNotFoundError, ProfileValidationError
from amplifierd.identifiers import LOCAL, ProfileId
from amplifierd.issues import Issue, Severity, errors

from .document import ALL_AGENTS, NAMED_SECTIONS, Extends, ProfileDocument, module_identity
from .profile_reader import NOTHING_READ, find_location

MAX_DEPTH = 16
_EXTENDS = "profile.extends"

DEFAULT_CONTEXT = "context-simple"
_LEVEL = "permission_level"
DEFAULTS = "default"
"""Names the layer of defaults."""
REPLACING = "sources.replace"
"""Names the setting that puts installed modules in the place of sources."""


class ProfileSource(Protocol):
    """Where inheritance finds profiles."""

    def read(self, profile_id: ProfileId) -> ProfileDocument | None:
        """Return a profile's document, `None` when there is no such profile."""

    def read_overlay(self, profile_id: ProfileId) -> ProfileDocument | None:
        """Return the user's overlay for a profile, if there is one."""

    def owners(self, name: str) -> Sequence[ProfileId]:
        """Return the profiles of that bare name, in all collections."""

    def unreadable(self, profile_id: ProfileId) -> Sequence[Issue]:
        """Return what is wrong with the file of a profile that is there and cannot be read."""


@dataclass(frozen=True)
class MergedProfile:
    """A profile with all it inherits; `layers` are what it was merged from, the root ancestor first.

    `named` are its sections with the sources that it names, where the settings have put installed modules in their
    place.
    """

    document: ProfileDocument
    ancestors: tuple[ProfileDocument, ...]
    sections: Mapping[str, Any]
    body: str
    layers: tuple[Layer, ...]
    issues: tuple[Issue, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def profile_id(self) -> ProfileId:
        return self.document.profile_id

    @property
    def is_valid(self) -> bool:
        return not errors(self.issues)

    def explain(self, path: str) -> dict[str, Any]:
        """Say which profile set the value at a key path: `{value, origin{profile, file, line}, overrode[]}`.

        Raises:
            KeyError: there is no such value.
        """
        whole = {**self.sections, "instruction": self.body} if self.body else self.sections
        section = path.partition("[")[0].partition(".")[0]
        known = partial(explain, owner="profile", lists="replace", identity=partial(module_identity, section))
        try:
            return known(whole, self.layers, path)
        except KeyError:
            found = known(self.named, self.layers, path)
        over = {"value": shown(str(found["value"])), "origin": found["origin"], "merged": False}
        origin = {"profile": REPLACING, "file": None, "line": None}
        return {"value": "installed", "origin": origin, "overrode": [*found["overrode"], over]}

    def raise_for_errors(self, *, strict: bool = False) -> None:
        """Raise if the profile cannot be compiled.

        Raises:
            ProfileValidationError: with all issues.
        """
        serious = [
            replace(issue, severity="error") if strict and issue.code == "context-missing" else issue
            for issue in self.issues
        ]
        if found := errors(serious):
            chain = " <- ".join(str(document.profile_id) for document in (self.document, *reversed(self.ancestors)))
            text = "\n".join(f"  {issue}" for issue in found)
            hint = f"correct it, then check it: amplifier profile validate {self.document.profile_id}"
            raise ProfileValidationError(f"Profile {chain} is not valid:\n{text}", serious, hint=hint)


def resolve_profile(source: ProfileSource, profile_id: ProfileId) -> MergedProfile:
    """Merge a profile with its ancestors and the user's overlay, in this order.

    Problems that an author can fix are in the result's `issues`; compiling and planning call `raise_for_errors`.

    Raises:
        ProfileNotFoundError: there is no such profile.
    """
    document = source.read(profile_id)
    if document is None:
        raise ProfileNotFoundError(
            f"Profile not found: {profile_id}", hint="list the profiles, or sync the collection it should be in"
        )
    ancestors, chain_issues = _find_ancestors(source, document)
    merging = _Merging(chain_issues)
    for parent in ancestors:
        merging.add(parent)
        merging.issues += [issue for issue in parent.issues if issue.severity == "error"]
    merging.add(document)
    merging.issues += document.issues
    if overlay := source.read_overlay(document.profile_id):
        merging.add(overlay, is_users_own=True)
        merging.issues += overlay.issues
    if not chain_issues and not any(issue.code in NOTHING_READ for issue in merging.issues):
        merging.check(document)  # of a part of the whole nothing can be said to be missing
    merging.add_defaults()
    return MergedProfile(
        document, ancestors, merging.sections, merging.body, tuple(merging.layers), tuple(merging.issues)
    )


class _Merging:
    def __init__(self, issues: Iterable[Issue]) -> None:
        self.sections: dict[str, Any] = {}
        self.body = ""
        self.layers: list[Layer] = []
        self.issues = list(issues)

    def add(self, document: ProfileDocument, *, is_users_own: bool = False) -> None:
        may_widen = is_users_own or document.profile_id.collection == LOCAL
        self._exclude(document.sections, document, may_widen=may_widen)
        try:
            self.sections = merge_sections(
                self.sections, document.sections, replaced=document.replaced, may_widen=may_widen
            )
        except ValueError as exc:
            self._note_policy(document, str(exc))
            sections = _without_policy(document.sections)
            self.sections = merge_sections(self.sections, sections, replaced=document.replaced)
        else:
            self._check_policy(document)
        self.body = document.body or self.body
        data = {**document.sections, "instruction": document.body} if document.body else document.sections
        self.layers.append(Layer(str(document.profile_id), document.path, data, text=document.text))

    def add_values(self, name: str, values: Mapping[str, Any]) -> None:
        """Lay values over that no file holds."""
        self.sections = merge_sections(self.sections, values)
        self.layers.append(Layer(name, None, values))

    def _exclude(self, sections: Mapping[str, Any], document: ProfileDocument, *, may_widen: bool) -> None:
        rules = sections.get("exclude")
        if isinstance(rules, Mapping) and rules:
            note = partial(self._note_no_match, document)
            self.sections = exclude(self.sections, rules, note, may_widen=may_widen)

    def check(self, document: ProfileDocument) -> None:
        """Note what the whole lacks."""
        for issue in find_missing(self.sections):
            line = find_location(document.text, issue.location) or 1
            self.issues.append(replace(issue, file=document.path, line=line))

    def add_defaults(self) -> None:
        """Fill in defaults."""
        if not (self.sections.get("session") or {}).get("context"):
            self.add_values(DEFAULTS, {"session": {"context": {"module": DEFAULT_CONTEXT, "config": {}}}})
        self.sections = {**self.sections, **MountPlan(self.sections).lists()}

    def _check_policy(self, document: ProfileDocument) -> None:
        """Say what of a policy does not count because only the user's own files may allow more."""
        asked, kept = (_policy_of(sections) for sections in (document.sections, self.sections))
        for section, lists in asked.items():
            for key in ("allow", "pass"):
                counted = kept.get(section, {}).get(key, ())
                refused = [text for text in lists.get(key) or () if text not in counted]
                if refused:
                    message = f"session.policy.{section}.{key} does not count for {', '.join(map(repr, refused))}"
                    self._note_policy(document, message, "policy-not-widened", "warning")

    def _note_policy(
        self, document: ProfileDocument, message: str, code: str = "policy-invalid", severity: Severity = "error"
    ) -> None:
        place = "session.policy"
        fix = "write it in a profile of your own or in an overlay, which may allow more"
        if severity == "error":
            fix = "give read, write and network the lists allow and deny, environment the lists pass and deny"
        line = find_location(document.text, place) or 1
        self.issues.append(Issue(code, message, place, document.path, line, fix, severity))

    def _note_no_match(self, document: ProfileDocument, location: str) -> None:
        message = f"exclude.{location} matches nothing that is inherited"
        fix = "take it out, or name what the parent has"
        place = f"exclude.{location}"
        line = find_location(document.text, place) or 1
        self.issues.append(Issue("exclude-no-match", message, place, document.path, line, fix, "warning"))


def _policy_of(sections: Mapping[str, Any]) -> Mapping[str, Any]:
    return (sections.get("session") or {}).get("policy") or {}


def _without_policy(sections: Mapping[str, Any]) -> dict[str, Any]:
    session = {key: value for key, value in sections["session"].items() if key != "policy"}
    return {**sections, "session": session}


def find_missing(sections: Mapping[str, Any]) -> Iterator[Issue]:
    """Yield what merged sections lack."""
    session = sections.get("session") or {}
    for member in SESSION_MEMBERS:
        entry = session.get(member)
        if entry is not None and not entry.get("module"):
            location = f"session.{member}"
            message = f"Module entry at {location} has no 'module'"
            yield Issue("module-missing", message, location, fix="add module: <id>")
    if not session.get("orchestrator"):
        text = "Schema v2 profile missing required session.orchestrator"
        yield Issue("orchestrator-missing", text, "session", fix="add session.orchestrator: {module: loop-basic}")
    if not session.get("context"):
        text = "Profile has no session.context; using context-simple"
        fix = "add session.context: {module: context-simple}"
        yield Issue("context-missing", text, "session", fix=fix, severity="warning")
    if not sections.get("providers"):
        text = "At least one provider must be configured"
        yield Issue("providers-missing", text, "providers", fix="add one to providers", severity="warning")


def _find_ancestors(
    source: ProfileSource, document: ProfileDocument
) -> tuple[tuple[ProfileDocument, ...], list[Issue]]:
    """Return a profile's ancestors, the root first, as far as they can be found, and what is wrong with the chain."""
    chain = [document]
    while (written := chain[0].extends) is not None:
        child = chain[0]
        line = find_location(child.text, _EXTENDS)
        note = partial(Issue, location=_EXTENDS, file=child.path, line=line, severity="error")
        candidates = _find_parent(source, child.profile_id, written)
        if len(candidates) > 1:
            names = ", ".join(str(candidate) for candidate in candidates)
            message = f"Profile '{written}' (extended by '{child.profile_id}') is in several collections: {names}"
            return tuple(chain[:-1]), [note("extends-ambiguous", message, fix="write collection/name")]
        parent = source.read(candidates[0]) if candidates else None
        if parent is None:
            if unreadable := [
                issue for place in _places(child.profile_id, written) for issue in source.unreadable(place)
            ]:
                message = f"Profile '{written}' (extended by '{child.profile_id}') is not valid: {unreadable[0]}"
                return tuple(chain[:-1]), [note("extends-invalid", message)]
            message = f"Profile '{written}' not found (extended by '{child.profile_id}')"
            fix = "name a profile of this home, or sync the collection it should be in"
            return tuple(chain[:-1]), [note("extends-not-found", message, fix=fix)]
        seen = [link.profile_id for link in reversed(chain)]
        if parent.profile_id in seen:
            raise _circular([*seen[seen.index(parent.profile_id) :], parent.profile_id], document)
        if len(chain) > MAX_DEPTH:
            message = f"Profile '{document.profile_id}' has more than {MAX_DEPTH} ancestors"
            return tuple(chain[:-1]), [note("extends-too-deep", message, fix="extend a profile nearer to the root")]
        chain.insert(0, parent)
    return tuple(chain[:-1]), []


def _circular(circle: Sequence[ProfileId], document: ProfileDocument) -> ProfileCircularInheritanceError:
    message = f"Circular dependency detected: {' -> '.join(str(link) for link in circle)}"
    fix = "remove one profile.extends in the circle"
    issue = Issue("extends-cycle", message, _EXTENDS, document.path, find_location(document.text, _EXTENDS), fix)
    return ProfileCircularInheritanceError(message, [issue], hint=fix)


def _places(child: ProfileId, written: str) -> Sequence[ProfileId]:
    extends = Extends.parse(written)
    return [] if extends is None else extends.places(child)


def _find_parent(source: ProfileSource, child: ProfileId, written: str) -> Sequence[ProfileId]:
    """Return the profiles that an `extends` can mean: one, several when it is ambiguous, none when there is none."""
    extends = Extends.parse(written)
    if extends is None:
        return []
    places = extends.places(child)
    if extends.collection is not None:
        return places
    if near := [place for place in places if source.read(place) is not None]:
        return near[:1]
    owners = [owner for owner in source.owners(extends.name) if owner != child]
    return owners or ([child] if child.name == extends.name else [])


# How a profile is laid over its parent and what it excludes of it: the rules around the foundation's merge.


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
    if not may_widen:
        narrow_level(merged, parent, child)
    return merged


def narrow_level(merged: dict[str, Any], parent: Sections, child: Sections) -> None:
    """Let a child that is not the user's own only narrow the permission level.

    Raises:
        ValueError: there is no such level.
    """
    old, new = (chosen_level((part.get("session") or {}).get(_LEVEL)) for part in (parent, child))
    level = old if new is None else narrowest(old, new)
    session = merged.get("session")
    if isinstance(session, Mapping) and session.get(_LEVEL) != level:
        kept = {key: value for key, value in session.items() if key != _LEVEL}
        merged["session"] = {**kept, _LEVEL: level} if level is not None else kept


def _merge_policy(merged: dict[str, Any], inherited: Sections, child: Sections, *, may_widen: bool) -> None:
    old, new = ((part.get("session") or {}).get("policy") for part in (inherited, child))
    if new is not None and isinstance(merged.get("session"), Mapping):
        policy = merge_policies(old, new, may_widen=may_widen)
        merged["session"] = {**merged["session"], "policy": policy}
    elif not may_widen:
        _keep_policy(merged, inherited)


def _keep_policy(sections: dict[str, Any], inherited: Sections) -> None:
    """Let policy and permission level outlive what was done to their section: without them, more would be allowed."""
    session = inherited.get("session") or {}
    if kept := {key: session[key] for key in ("policy", _LEVEL) if session.get(key)}:
        sections["session"] = {**(sections.get("session") or {}), **kept}


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
