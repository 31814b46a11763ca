"""One profile file as its author wrote it, in one shape."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from amplifierd.identifiers import LOCAL, ProfileId, is_collection_or_profile_name
from amplifierd.issues import Issue

NAMED_SECTIONS = ("agents", "context")

ALL_AGENTS = "*"
"""Stands, among a profile's agents, for every agent in its collection's `agents/` whose name is not beside it; those
that are left out are there as null."""


@dataclass(frozen=True)
class ReferenceBase:
    """Where a profile's relative references count from: a directory of its collection."""

    collection: str
    directory: PurePosixPath


class DeclaredReference(str):
    """A reference as its author wrote it, which remembers where it counts from when it is relative."""

    base: ReferenceBase

    @classmethod
    def of(cls, text: str, base: ReferenceBase) -> DeclaredReference:
        reference = cls(text)
        reference.base = base
        return reference


@dataclass(frozen=True)
class ProfileDocument:
    """A profile file, or an overlay.

    `sections` has everything but the metadata: session members as mappings, modules as lists of mappings, agents and
    context as mappings by name; an explicit null stays `None`. `replaced` names the sections that drop what is
    inherited (`agents: all`).
    """

    profile_id: ProfileId
    path: Path
    text: str
    base: ReferenceBase
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    replaced: frozenset[str] = frozenset()
    issues: tuple[Issue, ...] = ()

    @property
    def extends(self) -> str | None:
        """The parent as written, `None` for a profile without one."""
        return self.metadata.get("extends") or None

    @cached_property
    def profile_hash(self) -> str:
        return hash_text(self.text)


def hash_text(text: str) -> str:
    """Return the hash by which a change of a profile's text is noticed; the kind of line ends does not count."""
    return hashlib.sha256(text.replace("\r\n", "\n").replace("\r", "\n").encode()).hexdigest()


def as_json(value: Any) -> Any:
    """Return a value that YAML was read into as JSON has it: keys are texts, dates are written out, sets are lists."""
    match value:
        case dict():
            return {str(key): as_json(item) for key, item in value.items()}
        case list() | tuple() | set():
            return [as_json(item) for item in value]
        case None | str() | bool() | int() | float():
            return value
        case date() | datetime() | time():
            return value.isoformat().replace("+00:00", "Z")
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def module_identity(section: str, entry: Mapping[str, Any]) -> str | None:
    """Return what makes two entries of a module list one module: the ID, for a provider together with its instance."""
    module = entry.get("module")
    if not isinstance(module, str) or not module:
        return None
    instance = entry.get("instance_id") if section == "providers" else None
    return f"{module}/{instance}" if instance else module


@dataclass(frozen=True, slots=True)
class Extends:
    """`name`, `collection/name`, `collection:name` or `collection:profiles/name.md`; without a collection, the nearest.

    A bare name means a profile of the same collection, else one of the user's own, else the only one of that name.
    """

    name: str
    collection: str | None = None

    @classmethod
    def parse(cls, written: str) -> Extends | None:
        """Return what is meant, None when no profile can have such a name."""
        collection, colon, path = written.partition(":")
        if colon:
            written = f"{collection}/{path.removeprefix('profiles/').removesuffix('.md')}"
        if "/" not in written:
            return cls(written) if is_collection_or_profile_name(written) else None
        try:
            exact = ProfileId.parse(written)
        except ValueError:
            return None
        return cls(exact.name, exact.collection)

    def places(self, child: ProfileId) -> Sequence[ProfileId]:
        """Return the one profile that is meant, or for a bare name those that are looked for first."""
        if self.collection is not None:
            return [ProfileId(self.collection, self.name)]
        near = (ProfileId(collection, self.name) for collection in dict.fromkeys((child.collection, LOCAL)))
        return [place for place in near if place != child]
