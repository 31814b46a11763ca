"""What compiling asks of the collections of a home; they come from the layer above."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from amplifier_foundation.sources import GitReference
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue, errors
from amplifierd.profiles.documents.document import ProfileDocument, ReferenceBase


@dataclass(frozen=True, slots=True)
class CollectionRoot:
    """A collection's files on this machine.

    `boundary` is the repository or source directory that relative references must stay in. `reference` is the source
    of a git collection as it was synced, `commit` what it meant then, `content_hash` what the files were.
    """

    path: Path
    boundary: Path
    commit: str | None = None
    reference: GitReference | None = None
    content_hash: str | None = None


Roots = Mapping[str, CollectionRoot]
"""Collections by id."""


class ProfileCatalogue(Protocol):
    """The profiles of a home's collections, and the files that they refer to."""

    def look(self) -> None:
        """Take in what the user wrote since the last look."""

    def find_unseen(self) -> Collection[ProfileId]:
        """Return the user's own profiles whose texts were written, added or removed since the last look."""

    def collection_ids(self) -> Sequence[str]:
        """Return the collections there are."""

    def profile_ids(self) -> Sequence[ProfileId]:
        """Return every profile that can be used."""

    def has_profile(self, profile_id: ProfileId) -> bool:
        """True if a profile can be used."""

    def is_orphaned(self, profile_id: ProfileId) -> bool:
        """True if a profile is gone from its collection, and kept only for the sessions that use it."""

    def find_owners(self, name: str) -> Sequence[ProfileId]:
        """Return the usable profiles of a bare name, in all collections."""

    def reference_base(self, profile_id: ProfileId) -> ReferenceBase:
        """Return where a profile's relative references count from."""

    def authored_file(self, profile_id: ProfileId) -> Path:
        """Return the file that a person wrote, where it is on this machine, else the extracted copy."""

    def broken_profiles(self) -> Mapping[ProfileId, Sequence[Issue]]:
        """Return the files whose header cannot be read, by the profile each should be, with what is wrong."""

    def is_remote(self, collection_id: str) -> bool:
        """True if a collection was fetched from elsewhere."""

    def is_near(self, collection_id: str) -> bool:
        """True if a collection comes from this machine, be it from a repository or server of it."""

    async def root(self, collection_id: str) -> CollectionRoot:
        """Return a collection's files as of its last sync."""

    async def ensure_profile(self, profile_id: ProfileId) -> None:
        """See to it that a profile's text is in the home."""


@dataclass(frozen=True)
class Profile:
    """A profile as it is written, and whether it can be compiled; `extends` is the parent as written."""

    profile_id: ProfileId
    path: Path
    version: str
    description: str
    extends: str | None
    model: str | None
    valid: bool
    is_compiled: bool
    issues: tuple[Issue, ...] = ()
    ui: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls, document: ProfileDocument, issues: Sequence[Issue], *, is_compiled: bool, ui: Mapping[str, Any]
    ) -> Profile:
        metadata = document.metadata
        return cls(
            profile_id=document.profile_id,
            path=document.path,
            version=str(metadata.get("version") or ""),
            description=str(metadata.get("description") or ""),
            extends=document.extends,
            model=metadata.get("model"),
            valid=not errors(issues),
            is_compiled=is_compiled,
            issues=tuple(issues),
            ui=ui,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "profile_id": str(self.profile_id),
            "collection": self.profile_id.collection,
            "name": self.profile_id.name,
            "version": self.version,
            "description": self.description,
            "extends": self.extends,
            "model": self.model,
            "valid": self.valid,
            "is_compiled": self.is_compiled,
            "issues": [issue.to_dict() for issue in self.issues],
            "ui": dict(self.ui or {}),
        }
