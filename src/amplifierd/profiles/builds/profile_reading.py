"""The profiles of a home as they are: listed, read and validated, with the builds that are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifierd.exceptions import ProfileNotFoundError, ProfileValidationError
from amplifierd.identifiers import LOCAL, ProfileId, is_collection_or_profile_name
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.documents.document import Extends, ProfileDocument, ReferenceBase
from amplifierd.profiles.documents.inheritance import MergedProfile, resolve_profile
from amplifierd.profiles.documents.literal_secrets import KeepSecret, conceal_document
from amplifierd.profiles.documents.profile_reader import read_document

from . import publication
from .build import Build
from .lock import LockUnusableError, ProfileLock, read_lock
from .profile_catalogue import Profile, ProfileCatalogue
from .resources import MACHINE


class ProfileReading:
    """Reads the profiles of one home. Ids are `collection/profile`; another form is a `ValueError`."""

    def __init__(self, paths: Paths, catalogue: ProfileCatalogue, keep: KeepSecret) -> None:
        self._paths, self._catalogue = paths, catalogue
        self._texts = ProfileTexts(paths, catalogue, keep)

    def list(self) -> tuple[Profile, ...]:
        """Return every profile that can be used, those among them that are not valid included."""
        self._catalogue.look()
        known = {*self._catalogue.profile_ids(), *self._catalogue.broken_profiles()}
        order = {name: number for number, name in enumerate(self._catalogue.collection_ids())}
        ordered = sorted(known, key=lambda each: (order[each.collection], each.name))
        return tuple(self._describe_any(profile_id) for profile_id in ordered)

    def get(self, profile_id: ProfileId | str) -> Profile:
        """Return one profile.

        Raises:
            ProfileNotFoundError: there is none of that id.
        """
        known = ProfileId.parse(profile_id)
        self._catalogue.look()
        return self._describe(known)

    def merged(self, profile_id: ProfileId | str) -> MergedProfile:
        """Return a profile with all it inherits, and the user's overlay.

        Raises:
            ProfileNotFoundError: there is no such profile.
            ProfileValidationError: it cannot be read, or profiles extend each other in a circle.
        """
        self._catalogue.look()
        return self._merged(ProfileId.parse(profile_id))

    def _merged(self, profile_id: ProfileId) -> MergedProfile:
        self._check_readable(profile_id)
        return resolve_profile(self._texts, profile_id)

    def validate(self, text_or_path: str | Path) -> tuple[Issue, ...]:
        """Return what is wrong with a profile's text, or with the file at a path, its ancestors taken into account.

        Raises:
            OSError: the file cannot be read.
        """
        is_text = isinstance(text_or_path, str) and ("\n" in text_or_path or text_or_path.startswith("---"))
        path = Path("profile.md") if is_text else Path(text_or_path).expanduser().absolute()
        text = str(text_or_path) if is_text else path.read_bytes().decode("utf-8", "replace")
        stem = path.stem if path.stem != "profile" else path.parent.name
        name = stem if is_collection_or_profile_name(stem) else ""
        base = ReferenceBase(MACHINE, PurePosixPath(path.parent))
        document = read_document(text, path=path, profile_id=ProfileId(LOCAL, name), base=base)
        try:
            return resolve_profile(WithDocument(self._texts, document), document.profile_id).issues
        except ProfileValidationError as error:
            return error.issues

    def read_lock(self, profile_id: ProfileId | str) -> ProfileLock | None:
        """Return the lock of a profile's published build, `None` when it has none that can be read.

        Raises:
            FormatUnsupportedError: a newer version wrote it.
        """
        try:
            return read_lock(self._paths.profile_dir(profile_id))
        except LockUnusableError:
            return None

    def find_build(self, profile_id: ProfileId | str, build_id: str | None = None) -> Build | None:
        """Return the published build, or the one of an id, as it is on disk; `None` when it is not there."""
        known = ProfileId.parse(profile_id)
        if build_id is None:
            path = publication.find_published(self._paths, known)
        else:
            path = publication.find_build(self._paths, known, build_id)
        if path is None:
            return None
        try:
            lock = read_lock(path)
        except LockUnusableError:
            return None
        # While a newer text waits to be compiled, the published path is a copy of the build, with that text.
        return Build.of(known, publication.find_build(self._paths, known, lock.build_id) or path, lock)

    def _check_readable(self, profile_id: ProfileId) -> None:
        """Raise for a profile that is there and cannot be read: it is not to be called missing."""
        if issues := self._catalogue.broken_profiles().get(profile_id):
            text = "\n".join(f"  {issue}" for issue in issues)
            hint = f"correct it, then check it: amplifier profile validate {profile_id}"
            raise ProfileValidationError(f"Profile {profile_id} is not valid:\n{text}", issues, hint=hint)

    def _valid(self, profile_id: ProfileId) -> MergedProfile:
        merged = self._merged(profile_id)
        merged.raise_for_errors()
        return merged

    def _describe_any(self, profile_id: ProfileId) -> Profile:
        """Describe a profile even if its text was deleted: it comes back when it is compiled."""
        try:
            return self._describe(profile_id)
        except ProfileNotFoundError as error:
            path = self._paths.profile_file(profile_id)
            issue = Issue("profile-missing", f"There is no {path}", file=path, fix=error.hint)
            return Profile(profile_id, path, "", "", None, None, valid=False, is_compiled=False, issues=(issue,))

    def _describe(self, profile_id: ProfileId) -> Profile:
        if broken := self._catalogue.broken_profiles().get(profile_id):  # its file may have a name that no profile has
            file = next(issue.file for issue in broken if issue.file is not None)
            return Profile(profile_id, file, "", "", None, None, valid=False, is_compiled=False, issues=tuple(broken))
        try:
            merged = self._merged(profile_id)
        except ProfileValidationError as error:
            if (document := self._texts.read(profile_id)) is None:  # it became unreadable at this moment
                raise
            issues, ui = error.issues, dict[str, Any]()
        else:
            document, issues, ui = merged.document, merged.issues, merged.sections.get("ui") or {}
        is_compiled = (self._paths.profile_dir(profile_id) / "profile.lock").is_file()
        return Profile.of(document, issues, is_compiled=is_compiled, ui=ui)


async def extract_with_ancestors(catalogue: ProfileCatalogue, texts: ProfileTexts, profile_id: ProfileId) -> None:
    """See to it that the texts of a profile and of its ancestors are in the home.

    Raises:
        RefResolutionError: the profile's collection cannot be obtained; an ancestor's that cannot is skipped.
    """
    seen: set[ProfileId] = set()
    waiting = [profile_id]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        try:
            await catalogue.ensure_profile(each)
        except AmplifierError:
            if each == profile_id:
                raise
        document = await asyncio.to_thread(texts.read, each)
        waiting += _parents_of(catalogue, texts, document) if document is not None else []


def _parents_of(catalogue: ProfileCatalogue, texts: ProfileTexts, document: ProfileDocument) -> Sequence[ProfileId]:
    """Return the profiles that a profile may extend; for a bare name that is not near, those of all collections."""
    extends = Extends.parse(document.extends or "")
    if extends is None:
        return []
    places = extends.places(document.profile_id)
    if extends.collection is not None:
        return places
    if near := [place for place in places if texts.read(place) is not None]:
        return near[:1]
    return [ProfileId(each, extends.name) for each in catalogue.collection_ids()]


# Where inheritance finds the profiles of a home, and the user's overlays.


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
