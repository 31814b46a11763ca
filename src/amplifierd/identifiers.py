"""The names of things: collections, profiles, modules, agents, and the three names of a module."""

from __future__ import annotations

import re

from amplifier_core.packages import TYPE_TO_MOUNT_POINT, type_from_prefix

from .exceptions import CollectionError

_COLLECTION_OR_PROFILE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODULE = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_AGENT_OR_CONTEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_KEPT_SECRET = "AMPLIFIER_SECRET_"

LOCAL = "local"
"""The id of the user's own profiles; it is never registered."""

OWNERS_OF_THE_HOME = frozenset({None, "default", "local"})
"""Owners of sessions who are the person of a home: a program here, the first token, a daemon without tokens."""

MOUNT_TYPES = frozenset({"orchestrator", "context", "providers", "tools", "hooks"})
"""Where the modules of a profile are mounted."""


class ProfileId(str):
    """A profile's identity: the text `<collection>/<profile>`, which knows its two parts."""

    collection: str
    name: str

    def __new__(cls, collection: str, name: str) -> ProfileId:
        identity = super().__new__(cls, f"{collection}/{name}")
        identity.collection, identity.name = collection, name
        return identity

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override] # a text is made of one part
        return self.collection, self.name

    @classmethod
    def parse(cls, text: str | ProfileId) -> ProfileId:
        """Return the identity that `collection/profile` names.

        Raises:
            ValueError: it is not of that form.
        """
        collection, slash, name = str(text).partition("/")
        if not slash or not is_collection_or_profile_name(collection) or not is_collection_or_profile_name(name):
            raise ValueError(
                f"Invalid profile_id format: {text}. Expected format: collection/profile (e.g., 'foundation/base')"
            )
        return cls(collection, name)


def is_collection_or_profile_name(text: str) -> bool:
    return _COLLECTION_OR_PROFILE.fullmatch(text) is not None


def is_module_id(text: str) -> bool:
    return _MODULE.fullmatch(text) is not None


def kept_secret(digest: str) -> str:
    """Return the name of a secret that the key store keeps for a profile or a plan, which has `${name}` instead."""
    return f"{_KEPT_SECRET}{digest.upper()}"


NAMING_SECRET = kept_secret("naming")
"""The secret that the names of the others are made with; no plan gets it."""


def is_kept_secret(name: str) -> bool:
    return name.startswith(_KEPT_SECRET)


def is_agent_or_context_name(text: str) -> bool:
    return _AGENT_OR_CONTEXT.fullmatch(text) is not None


def checked_collection_id(text: str) -> str:
    """Return a collection's id.

    Raises:
        CollectionError: with code `invalid-identifier`.
    """
    if not is_collection_or_profile_name(text):
        raise CollectionError(
            f"Invalid collection id {text!r}",
            code="invalid-identifier",
            hint="an id begins with a lower-case letter or digit and has at most 64 of a-z 0-9 . _ -",
        )
    return text


def mount_type(module_id: str) -> str:
    """Return where a module is mounted, told by the beginning of its ID.

    Raises:
        ValueError: its ID begins with none of the known prefixes.
    """
    found = find_mount_type(module_id)
    if found is None:
        raise ValueError(f"Could not determine mount type for module: {module_id}")
    return found


def find_mount_type(module_id: str) -> str | None:
    """Return where a module is mounted if its ID tells, else None."""
    module_type = type_from_prefix(module_id)
    return None if module_type is None else TYPE_TO_MOUNT_POINT[module_type]
