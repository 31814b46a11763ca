"""The user's own profiles as an application changes them: written in `config/profiles`, comments kept."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from amplifier_foundation.sources.store import locked_now
from amplifierd.exceptions import ProfileNotFoundError, ProfileValidationError, RequestRefusedError
from amplifierd.identifiers import LOCAL, ProfileId, is_collection_or_profile_name
from amplifierd.issues import errors
from amplifierd.paths import Paths
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.collections.catalogue import Catalogue
from amplifierd.profiles.documents.document import ProfileDocument, ReferenceBase, as_json
from amplifierd.profiles.documents.literal_secrets import KeepSecret, conceal_document
from amplifierd.profiles.documents.profile_reader import read_document
from amplifierd.session_defaults import find_active_profile
from amplifierd.yaml_edits import edited, replace_text

METADATA = ("version", "description", "extends", "model")
"""Keys of a profile that stand below `profile:` in its file."""

_FRONT = re.compile(r"\A---[ \t]*\r?\n(?P<front>.*?)^---[ \t]*\r?\n?(?P<body>.*)\Z", re.DOTALL | re.MULTILINE)
_FIRST_VERSION = "0.1.0"
_LOCK_WAIT_S = 30.0


class ProfileEdits:
    """Finds, writes, copies, removes and activates profiles of a home; calls block.

    `keep` puts a secret into the key store; `is_used` says whether a session still needs a profile.
    """

    def __init__(
        self,
        paths: Paths,
        profiles: Profiles,
        catalogue: Catalogue,
        *,
        keep: KeepSecret,
        is_used: Callable[[ProfileId], bool],
    ) -> None:
        self._paths, self._profiles, self._catalogue = paths, profiles, catalogue
        self._keep, self._is_used = keep, is_used

    def identify(self, text: str) -> ProfileId:
        """Return the profile that `collection/profile` names, or `profile` alone where there is only one.

        Raises:
            RequestRefusedError: it is not an id (`invalid-identifier`), or several are meant (`ambiguous-profile`).
            ProfileNotFoundError: there is none of that name.
        """
        if "/" in text:
            return checked_profile_id(text)
        if not is_collection_or_profile_name(text):
            raise _not_an_id(text)
        self._catalogue.look()
        found = self._catalogue.find_owners(text)
        if len(found) > 1:
            hint = f"write one of {', '.join(found)}"
            raise RequestRefusedError(f"several profiles are named {text!r}", code="ambiguous-profile", hint=hint)
        if not found:
            raise ProfileNotFoundError(f"Profile not found: {text}", hint="list the profiles")
        return found[0]

    def text(self, profile_id: ProfileId) -> tuple[str, str]:
        """Return the text of a profile and its version: of the user's own, the file as it is now, readable or not.

        Where the file has a secret, the text has a reference to the key store: written back, it means the same.

        Raises:
            ProfileNotFoundError: there is no such profile.
            ProfileValidationError: it is not the user's own, and cannot be read.
        """
        if profile_id.collection != LOCAL:
            text = self._profiles.merged(profile_id).document.text
            return text, text_version(text)
        text = self._own_file(profile_id).read_text(encoding="utf-8-sig")
        return conceal_document(_document(text), self._keep).text, text_version(text)

    def create(self, name: str, text: str) -> ProfileId:
        """Store a profile of the user's own.

        Raises:
            ProfileValidationError: it breaks rules; with all issues.
            RequestRefusedError: there is one of that name already.
        """
        self._check(f"{LOCAL}/{name}", text)
        profile_id = checked_profile_id(f"{LOCAL}/{name}")
        file = self._paths.own_profiles / f"{name}.md"
        with self._locked():
            self._catalogue.look()
            if self._catalogue.has_profile(profile_id) or file.exists():
                raise RequestRefusedError(f"There is already a profile {profile_id}", code="profile-exists")
            replace_text(file, text)
        return profile_id

    def change(self, profile_id: ProfileId, changes: Mapping[str, Any]) -> None:
        """Set keys of a profile, and take out those that are None; `instruction` is its body.

        Raises:
            RequestRefusedError: it is not the user's own (`profile-read-only`).
            ProfileValidationError: it would break rules; nothing was changed.
        """
        with self._locked():
            file = self._own_file(profile_id)
            text = changed_text(file.read_text(encoding="utf-8-sig"), changes)
            self._check(profile_id, text)
            replace_text(file, text)

    def replace(self, profile_id: ProfileId, text: str, *, replaces: str | None = None) -> None:
        """Write the whole text of a profile; only over the one with the version `replaces`, where that is given.

        Raises:
            RequestRefusedError: it is not the user's own (`profile-read-only`), was changed meanwhile
                (`profile-changed`), or the text gives it another name (`validation-error`).
            ProfileValidationError: it breaks rules; nothing was changed.
        """
        with self._locked():
            file = self._own_file(profile_id)
            if replaces is not None and replaces != text_version(file.read_text(encoding="utf-8-sig")):
                hint = "read it again, and make your changes in the new text"
                raise RequestRefusedError(
                    f"Profile {profile_id} was changed meanwhile", code="profile-changed", hint=hint
                )
            self._check(profile_id, text)
            if (name := name_in(text)) != profile_id.name:
                hint = "copy the profile to give it another name"
                raise RequestRefusedError(
                    f"the text describes the profile {name!r}, not {profile_id}", code="validation-error", hint=hint
                )
            replace_text(file, text)

    def copy(self, profile_id: ProfileId, new_name: str) -> ProfileId:
        """Store a copy of any profile, with all its sections, as one of the user's own; its parent stays the same.

        Raises what `create` raises.
        """
        merged = self._profiles.merged(profile_id)
        changes = {"name": new_name}
        if merged.ancestors:
            changes["extends"] = str(merged.ancestors[-1].profile_id)
        return self.create(new_name, changed_text(merged.document.text, changes))

    def delete(self, profile_id: ProfileId) -> None:
        """Remove a profile of the user's own.

        Raises:
            RequestRefusedError: it is not the user's own, is active, or a session that has not ended runs it.
        """
        with self._locked():
            file = self._own_file(profile_id)
            if find_active_profile(self._paths) == profile_id:
                raise RequestRefusedError(f"Profile {profile_id} is active", code="profile-in-use")
            if self._is_used(profile_id):
                raise RequestRefusedError(f"A session uses profile {profile_id}", code="profile-in-use")
            file.unlink()
            if file.name == "profile.md" and not any(file.parent.iterdir()):
                file.parent.rmdir()

    def activate(self, profile_id: ProfileId) -> None:
        """Have sessions that name no profile run this one."""
        self._profiles.get(profile_id)
        replace_text(self._paths.active_profile_file, f"{profile_id}\n")

    def deactivate(self) -> None:
        self._paths.active_profile_file.unlink(missing_ok=True)

    def _own_file(self, profile_id: ProfileId) -> Path:
        self._profiles.get(profile_id)
        if profile_id.collection != LOCAL:
            hint = "copy it, then change the copy"
            raise RequestRefusedError(f"Profile {profile_id} is not yours", code="profile-read-only", hint=hint)
        return self._catalogue.authored_file(profile_id)

    def _check(self, profile_id: str, text: str) -> None:
        if found := errors(self._profiles.validate(text if text.startswith("---") else f"\n{text}")):
            message = "\n".join(f"  {issue}" for issue in found)
            raise ProfileValidationError(f"Profile {profile_id} is not valid:\n{message}", found)

    def _locked(self) -> Any:
        return locked_now(self._paths.locks / "own-profiles.lock", wait_s=_LOCK_WAIT_S)


def profile_text(values: Mapping[str, Any]) -> str:
    """Return the file of a profile that is given as data: `name`, the keys of its metadata, sections, `instruction`."""
    sections = {key: value for key, value in values.items() if key not in ("name", "instruction", *METADATA)}
    metadata = {"name": values["name"], "version": values.get("version") or _FIRST_VERSION, "schema_version": 2}
    metadata |= {key: values[key] for key in METADATA[1:] if values.get(key) is not None}
    stream = io.StringIO()
    YAML().dump(as_json({"profile": metadata, **{k: v for k, v in sections.items() if v is not None}}), stream)
    body = str(values.get("instruction") or "").strip()
    return f"---\n{stream.getvalue()}---\n" + (f"\n{body}\n" if body else "")


def text_version(text: str) -> str:
    """Return what tells one text of a profile from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def name_in(text: str) -> str:
    """Return the name that a profile's text gives it; empty when it gives none."""
    return _document(text).profile_id.name


def _document(text: str) -> ProfileDocument:
    base = ReferenceBase(LOCAL, PurePosixPath())
    return read_document(text, path=Path("profile.md"), profile_id=ProfileId(LOCAL, ""), base=base)


def changed_text(text: str, changes: Mapping[str, Any]) -> str:
    """Return a profile's text with other values; what is not named stays, comments included.

    Raises:
        RequestRefusedError: the text has no front matter that can be changed.
    """
    parts = _FRONT.match(text)
    if parts is None:
        raise RequestRefusedError("the profile's file has no front matter", code="validation-error")

    def change(document: CommentedMap) -> None:
        for key, value in changes.items():
            if key != "instruction":
                _set(document, key, value)

    try:
        front = edited(parts["front"], change)
    except (YAMLError, TypeError) as error:
        raise RequestRefusedError("the profile's front matter cannot be read", code="validation-error") from error
    body = parts["body"] if "instruction" not in changes else _body(changes["instruction"])
    return f"---\n{front}---\n{body}"


def checked_profile_id(text: str) -> ProfileId:
    """Return the id of a profile.

    Raises:
        RequestRefusedError: it cannot be one (`invalid-identifier`).
    """
    try:
        return ProfileId.parse(text)
    except ValueError as error:
        raise _not_an_id(text) from error


def _not_an_id(text: str) -> RequestRefusedError:
    return RequestRefusedError(
        f"{text!r} is not the id of a profile", code="invalid-identifier", hint="write collection/profile"
    )


def _set(document: CommentedMap, key: str, value: Any) -> None:
    holder = document.setdefault("profile", CommentedMap()) if key in ("name", *METADATA) else document
    if value is None:
        holder.pop(key, None)
    else:
        holder[key] = as_json(value)


def _body(instruction: str | None) -> str:
    return f"\n{instruction.strip()}\n" if instruction and instruction.strip() else ""
