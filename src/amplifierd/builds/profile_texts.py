"""Where inheritance finds the profiles of a home, and the user's overlays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from amplifierd.documents.document import ProfileDocument, ReferenceBase
from amplifierd.documents.literal_secrets import KeepSecret, conceal_document
from amplifierd.documents.profile_reader import read_document
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue
from amplifierd.paths import Paths

from . import publication
from .profile_catalogue import ProfileCatalogue
from .resources import MACHINE


class ProfileTexts:
    """Where inheritance finds the profiles of a home, and the user's overlays."""

    def __init__(self, paths: Paths, catalogue: ProfileCatalogue, keep: KeepSecret) -> None:
        self._paths, self._catalogue, self._keep = paths, catalogue, keep
        self._read: dict[ProfileId, tuple[object, ProfileDocument]] = {}

    def read(self, profile_id: ProfileId) -> ProfileDocument | None:
        """Return a profile's document; a file that was not written since is not read again."""
        if not self._catalogue.has_profile(profile_id):
            return None
        path = self._paths.profile_file(profile_id)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if not publication.recover(self._paths, profile_id):
                return None
            status = path.stat()
        base, authored = self._catalogue.reference_base(profile_id), self._catalogue.authored_file(profile_id)
        seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, base, authored)
        known = self._read.get(profile_id)
        if known is None or known[0] != seen:
            known = (seen, self._load(path.read_bytes(), authored, profile_id, base))
            self._read[profile_id] = known
        return known[1]

    def _load(self, content: bytes, path: Path, profile_id: ProfileId, base: ReferenceBase) -> ProfileDocument:
        document = _read(content, path, profile_id, base)
        if document.profile_id == profile_id:
            return document
        message = f"The profile is named '{document.profile_id.name}' and its directory '{profile_id.name}'"
        issue = Issue("name-mismatch", message, "profile.name", path, fix="give both the same name", severity="warning")
        return replace(document, profile_id=profile_id, issues=(*document.issues, issue))

    def read_overlay(self, profile_id: ProfileId) -> ProfileDocument | None:
        """Return the user's overlay of a profile; like extracted profiles it has references in place of secrets."""
        path = self._paths.overlay_file(profile_id)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        base = ReferenceBase(MACHINE, PurePosixPath(path.parent))
        return conceal_document(_read(content, path, profile_id, base, is_overlay=True), self._keep)

    def owners(self, name: str) -> Sequence[ProfileId]:
        return self._catalogue.find_owners(name)

    def unreadable(self, profile_id: ProfileId) -> Sequence[Issue]:
        return self._catalogue.broken_profiles().get(profile_id, ())


@dataclass(frozen=True)
class WithDocument:
    """The profiles of a home, and one that is not in it."""

    source: ProfileTexts
    document: ProfileDocument

    def read(self, profile_id: ProfileId) -> ProfileDocument | None:
        return self.document if profile_id == self.document.profile_id else self.source.read(profile_id)

    def read_overlay(self, profile_id: ProfileId) -> ProfileDocument | None:
        return None

    def owners(self, name: str) -> Sequence[ProfileId]:
        return self.source.owners(name)

    def unreadable(self, profile_id: ProfileId) -> Sequence[Issue]:
        return self.source.unreadable(profile_id)


def _read(
    content: bytes, path: Path, profile_id: ProfileId, base: ReferenceBase, *, is_overlay: bool = False
) -> ProfileDocument:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        issue = Issue("invalid-yaml", f"Invalid YAML in {path}: it is not UTF-8 ({error.reason})", file=path)
        return ProfileDocument(profile_id, path, content.decode("utf-8", "replace"), base, issues=(issue,))
    return read_document(text, path=path, profile_id=profile_id, base=base, is_overlay=is_overlay)
