"""What collections are asked for, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from amplifier_system.urls import shown
from amplifierd.issues import Issue

SyncStatus = Literal["synced", "updated", "unchanged", "skipped", "error"]
ProfileOutcome = Literal["compiled", "extracted", "unchanged", "removed", "error"]
CollectionStatus = Literal["synced", "unsynced", "disabled", "error"]


@dataclass(frozen=True, slots=True)
class CollectionEntry:
    """What `collections.yaml` says about one collection."""

    identifier: str
    source: str
    enabled: bool = True
    auto_sync: bool = True
    installed_at: str | None = None

    @property
    def locked_source(self) -> str:
        """The source as a lock has it, and as it is shown: without credentials."""
        return shown(self.source)


@dataclass(frozen=True, slots=True)
class LockedProfile:
    """One profile at the last sync: its file in the collection, its version, the hash of its text, its parent."""

    path: str
    version: str
    hash: str
    extends: str | None = None


@dataclass(frozen=True)
class LockedCollection:
    """A collection at its last sync.

    `orphaned` are profiles that are gone from it while a session still uses them. `broken` are files whose header
    cannot be read, by the name of the profile that each should be.
    """

    source: str
    commit: str | None = None
    content_hash: str | None = None
    synced_at: str | None = None
    subpath: str | None = None
    profiles: Mapping[str, LockedProfile] = field(default_factory=dict)
    orphaned: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectionProfile:
    """One profile of a collection; `path` is its file in the collection."""

    name: str
    version: str
    path: str
    status: str
    installed_at: str | None = None


@dataclass(frozen=True)
class Collection:
    """A collection with what its last sync brought; `warnings` are about its entry and its files."""

    identifier: str
    source: str
    status: CollectionStatus
    enabled: bool = True
    auto_sync: bool = True
    commit: str | None = None
    content_hash: str | None = None
    installed_at: str | None = None
    synced_at: str | None = None
    profiles: tuple[CollectionProfile, ...] = ()
    warnings: tuple[Issue, ...] = ()

    @property
    def profile_count(self) -> int:
        return len(self.profiles)

    def to_dict(self) -> dict[str, Any]:
        warnings = [issue.to_dict() for issue in self.warnings]
        return {**asdict(self), "profile_count": self.profile_count, "warnings": warnings}


@dataclass(frozen=True)
class Inventory:
    """What a collection's directories hold beside profiles, and what its `pyproject.toml` says. Paths count from its
    root."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    agents: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    scenario_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddResult:
    """What came of registering a collection; `warning` tells which of its profiles cannot be used, and why.

    `unusable` has the names of those that have no build because of an error.
    """

    success: bool
    collection_id: str
    profile_count: int
    message: str
    warning: str | None = None
    unusable: tuple[str, ...] = ()


@dataclass(frozen=True)
class SyncResult:
    """What a sync did, or with `check` would do, to one collection. `warnings` are about its source."""

    status: SyncStatus
    commit_before: str | None = None
    commit_after: str | None = None
    profiles: Mapping[str, ProfileOutcome] = field(default_factory=dict)
    errors: tuple[Issue, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "profiles": dict(self.profiles), "errors": [issue.to_dict() for issue in self.errors]}
