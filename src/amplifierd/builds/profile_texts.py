"""Where inheritance finds the profiles of a home, and the user's overlays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from amplifierd.documents.document import ProfileDocument, ReferenceBase
from amplifierd.documents.profile_reader import read_document
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue

from . import publication
from .resources import MACHINE

if TYPE_CHECKING:
    from amplifierd.home import Home


class HomeProfiles:
    """Where inheritance finds the profiles of a home, and the user's overlays."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._read: dict[ProfileId, tuple[object, ProfileDocument]] = {}

    def read(self, profile_id: ProfileId) -> ProfileDocument | None:
        """Return a profile's document; a file that was not written since is not read again."""
        path = self._home.paths.profile_file(profile_id)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if not publication.recover(self._home.paths, profile_id):
                return None
            status = path.stat()
        if not self._home.collections.has_profile(profile_id):
            return None
        base = self._home.collections.reference_base(profile_id)
        seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, base)
        known = self._read.get(profile_id)
        if known is None or known[0] != seen:
            known = (seen, self._load(path, profile_id, base))
            self._read[profile_id] = known
        return known[1]

    def _load(self, path: Path, profile_id: ProfileId, base: ReferenceBase) -> ProfileDocument:
        document = _read(path.read_bytes(), path, profile_id, base)
        if document.profile_id == profile_id:
            return document
        message = f"The profile is named '{document.profile_id.name}' and its directory '{profile_id.name}'"
        issue = Issue("name-mismatch", message, "profile.name", path, fix="give both the same name", severity="warning")
        return replace(document, profile_id=profile_id, issues=(*document.issues, issue))

    def read_overlay(self, profile_id: ProfileId) -> ProfileDocument | None:
        path = self._home.paths.overlay_file(profile_id)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        base = ReferenceBase(MACHINE, PurePosixPath(path.parent))
        return _read(content, path, profile_id, base, is_overlay=True)

    def owners(self, name: str) -> Sequence[ProfileId]:
        return self._home.collections.find_owners(name)


@dataclass(frozen=True)
class WithDocument:
    """The profiles of a home, and one that is not in it."""

    source: HomeProfiles
    document: ProfileDocument

    def read(self, profile_id: ProfileId) -> ProfileDocument | None:
        return self.document if profile_id == self.document.profile_id else self.source.read(profile_id)

    def read_overlay(self, profile_id: ProfileId) -> ProfileDocument | None:
        return None

    def owners(self, name: str) -> Sequence[ProfileId]:
        return self.source.owners(name)


def _read(
    content: bytes, path: Path, profile_id: ProfileId, base: ReferenceBase, *, is_overlay: bool = False
) -> ProfileDocument:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        issue = Issue("invalid-yaml", f"Invalid YAML in {path}: it is not UTF-8 ({error.reason})", file=path)
        return ProfileDocument(profile_id, path, content.decode("utf-8", "replace"), base, issues=(issue,))
    return read_document(text, path=path, profile_id=profile_id, base=base, is_overlay=is_overlay)
