"""The profiles of a home as they are: listed, read and validated, with the builds that are there."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from amplifierd.documents.document import ReferenceBase
from amplifierd.documents.inheritance import MergedProfile, resolve_profile
from amplifierd.documents.literal_secrets import KeepSecret
from amplifierd.documents.profile_reader import read_document
from amplifierd.exceptions import ProfileNotFoundError, ProfileValidationError
from amplifierd.identifiers import LOCAL, ProfileId, is_collection_or_profile_name
from amplifierd.issues import Issue
from amplifierd.paths import Paths

from . import publication
from .build import Build
from .lock import LockUnusableError, ProfileLock, read_lock
from .profile import Profile
from .profile_catalogue import ProfileCatalogue
from .profile_texts import ProfileTexts, WithDocument
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
