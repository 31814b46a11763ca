"""The policy as it is written in a plan, and how the layers of a plan are laid over each other."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Self, cast

from .environment_access import SECRET_VARIABLES
from .network_access import PRIVATE, Commands, newly_named
from .path_access import secret_places
from .running_places import DENIED_NAMES

_Section = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Rules:
    """Two lists of one section; in `environment` the first is written `pass`.

    `ask` and `commands` are the network's: hosts that are asked about although they are allowed by name, and what
    approved commands reach.
    """

    allow: tuple[str, ...]
    deny: tuple[str, ...]
    ask: tuple[str, ...] = ()
    commands: Commands = "open"


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """The four sections of a policy, complete."""

    read: Rules
    write: Rules
    network: Rules
    environment: Rules

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Self:
        """Read `session.policy`: what it denies is added to the defaults, what it allows replaces them.

        Raises:
            ValueError: a section or a list is unknown or not a list of texts.
        """
        sections = policy_sections(given)
        defaults = default_rules()
        return cls(**{name: _over(getattr(defaults, name), sections.get(name, {})) for name in SECTIONS})


SECTIONS: dict[str, str] = {"read": "allow", "write": "allow", "network": "allow", "environment": "pass"}
"""The sections of a policy, each with the name of its first list."""

_OF_NETWORK = ("ask", "commands")
_COMMANDS: tuple[Commands, ...] = ("open", "hosts")


def default_rules() -> PolicyRules:
    """Return the policy of a session that says nothing about it."""
    secret = tuple(secret_places())
    return PolicyRules(
        read=Rules(("/",), secret),
        write=Rules((".",), (*DENIED_NAMES, *secret)),
        network=Rules(("*",), (PRIVATE,)),
        environment=Rules((), SECRET_VARIABLES),
    )


def merge_policies(
    base: Mapping[str, Any] | None, layer: Mapping[str, Any] | None, *, may_widen: bool
) -> dict[str, Any]:
    """Lay one policy over another, both as written; returns what a plan carries.

    What is denied adds up. What is allowed replaces what the base allows when the layer may widen it; otherwise it is
    cut to what the base allows, and a place that is denied cannot be taken back by naming it.

    Raises:
        ValueError: one of them is not a policy.
    """
    below, above = policy_sections(base), policy_sections(layer)
    merged: dict[str, Any] = {}
    for name, first in SECTIONS.items():
        old, new = below.get(name, {}), above.get(name, {})
        if not old and not new:
            continue
        section: dict[str, Any] = {}
        denied = list(dict.fromkeys((*old.get("deny", ()), *new.get("deny", ()))))
        allowed = old.get(first)
        if first in new:
            allowed = new[first] if may_widen else _narrowed(name, allowed, new[first], old.get("deny", ()))
        if allowed is not None and not (may_widen and first in new):
            allowed = tuple(text for text in allowed if not _names_one_of(name, text, new.get("deny", ())))
        if allowed is not None:
            section[first] = list(allowed)
            if may_widen and first in new:
                denied = [text for text in denied if text not in new[first] or text in new.get("deny", ())]
        if denied:
            section["deny"] = denied
        if name == "network":
            section |= _merged_network(old, new, section.get("allow"), may_widen=may_widen)
        merged[name] = section
    return merged


def _merged_network(old: _Section, new: _Section, allowed: list[str] | None, *, may_widen: bool) -> dict[str, Any]:
    """Return what the network has besides its two lists.

    A host that a layer names without being allowed to widen stays one that is asked about, and such a layer can bind
    commands to hosts but not let them go.
    """
    asked = dict.fromkeys((*old.get("ask", ()), *new.get("ask", ())))
    if may_widen and "allow" in new:
        asked = dict.fromkeys(host for host in asked if host not in new["allow"] or host in new.get("ask", ()))
    elif "allow" in new:
        asked |= dict.fromkeys(newly_named(allowed or (), old.get("allow", ())))
    merged: dict[str, Any] = {"ask": list(asked)} if asked else {}
    commands = {*old.get("commands", ()), *new.get("commands", ())}
    if may_widen and "commands" in new:
        commands = set(new["commands"])
    if commands:
        merged["commands"] = "hosts" if "hosts" in commands else "open"
    return merged


def policy_sections(given: Mapping[str, Any] | None) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the lists of a policy as written, by section.

    Raises:
        ValueError: a section or a list is unknown or not a list of texts.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"policy must be a mapping with {', '.join(SECTIONS)}, got {given!r}")  # noqa: TRY004
    if unknown := sorted(set(map(str, given)) - set(SECTIONS)):
        raise ValueError(f"policy.{unknown[0]} is unknown (known: {', '.join(SECTIONS)})")
    return {name: _lists(name, section) for name, section in given.items() if section is not None}


def _lists(name: str, section: Any) -> dict[str, tuple[str, ...]]:
    first = SECTIONS[name]
    others = _OF_NETWORK if name == "network" else ()
    if not isinstance(section, Mapping) or (unknown := set(map(str, section)) - {first, "deny", *others}):
        wrong = section if not isinstance(section, Mapping) else sorted(unknown)[0]
        raise ValueError(f"policy.{name} must have the lists {first} and deny, got {wrong!r}")
    found: dict[str, tuple[str, ...]] = {}
    for key, texts in section.items():
        if texts is None:
            continue
        if key == "commands":
            if texts not in _COMMANDS:
                raise ValueError(f"policy.network.commands must be {' or '.join(_COMMANDS)}, got {texts!r}")
            found[key] = (texts,)
            continue
        if isinstance(texts, str) or not isinstance(texts, Iterable) or not all(isinstance(t, str) for t in texts):
            raise ValueError(f"policy.{name}.{key} must be a list of texts, got {texts!r}")
        found[key] = tuple(texts)
    return found


def _over(defaults: Rules, section: Mapping[str, tuple[str, ...]]) -> Rules:
    allow = section.get("allow", section.get("pass", defaults.allow))
    deny = tuple(dict.fromkeys((*defaults.deny, *section.get("deny", ()))))
    (commands,) = section.get("commands", (defaults.commands,))
    return _shared(allow, deny, section.get("ask", ()), cast("Commands", commands))


@lru_cache(maxsize=64)
def _shared(allow: tuple[str, ...], deny: tuple[str, ...], ask: tuple[str, ...], commands: Commands) -> Rules:
    """Return rules; many sessions with the same ones share them."""
    return Rules(allow, deny, ask, commands)


def _narrowed(
    name: str, base: tuple[str, ...] | None, asked: tuple[str, ...], base_deny: tuple[str, ...]
) -> tuple[str, ...]:
    """Return what both lists allow: of two entries one of which is inside the other, the inner one."""
    allowed = getattr(default_rules(), name).allow if base is None else base
    is_path = name in ("read", "write")
    within = _is_within if is_path else _is_same_or_any
    inner = [text for text in asked if any(within(text, outer) for outer in allowed)]
    if name == "environment":  # naming a variable passes it whatever its value: that is for those who may widen
        inner = [text for text in inner if text in allowed]
    inner += [text for text in allowed if any(within(text, outer) for outer in asked)]
    denied = (*getattr(default_rules(), name).deny, *base_deny)
    return tuple(dict.fromkeys(text for text in inner if text in allowed or not _names_one_of(name, text, denied)))


def _names_one_of(section: str, text: str, denied: tuple[str, ...]) -> bool:
    """True if an entry may be one of the denied ones, however it is written; then it would take that back."""
    if section in ("read", "write"):
        return any(_may_be_same_place(_normal(text), _normal(place)) for place in denied)
    if section == "network":
        return text in denied
    return any(fnmatchcase(text.upper(), pattern.upper()) for pattern in denied)


def _may_be_same_place(one: PurePosixPath, other: PurePosixPath) -> bool:
    """True if two places can be the same, in whatever directory a relative one begins (but not in the root)."""
    shorter, longer = sorted((_folded_parts(one), _folded_parts(other)), key=len)
    if (one.is_absolute() and other.is_absolute()) or len(shorter) == len(longer):
        return shorter == longer
    is_below_root = longer[0] == "/" and len(longer) == len(shorter) + 1
    return bool(shorter) and shorter[0] != "/" and not is_below_root and longer[-len(shorter) :] == shorter


def _folded_parts(path: PurePosixPath) -> tuple[str, ...]:
    return tuple(unicodedata.normalize("NFC", part).casefold() for part in path.parts)


def _is_same_or_any(text: str, outer: str) -> bool:
    return outer in ("*", text) or (outer.startswith("*.") and text.endswith(outer[1:]))


def _is_within(text: str, outer: str) -> bool:
    """True if one place is inside another, as far as their texts tell; `.` is a place of its own."""
    inner_path, outer_path = _normal(text), _normal(outer)
    if ".." in inner_path.parts:
        return False
    if outer_path == PurePosixPath("/"):
        return True
    if inner_path.is_absolute() != outer_path.is_absolute():
        return False
    return inner_path.is_relative_to(outer_path)


def _normal(text: str) -> PurePosixPath:
    try:
        expanded = Path(text).expanduser()
    except RuntimeError:  # an unknown user: the path is taken as written
        expanded = Path(text)
    return PurePosixPath(os.path.normpath(expanded))
