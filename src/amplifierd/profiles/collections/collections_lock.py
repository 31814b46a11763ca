"""`share/collections.lock`: what the last sync of each collection brought."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import locked_now
from amplifierd.exceptions import CollectionError
from amplifierd.identifiers import is_collection_or_profile_name
from amplifierd.issues import Issue
from amplifierd.stored_json import StoredFormat

from .models import LockedCollection, LockedProfile

logger = logging.getLogger(__name__)

FORMAT = StoredFormat(version=1)

_KEY = "collections"
_LOCK_WAIT_S = 30.0


class CollectionsLock:
    """The sync state of one home; the file is read again only when it changed."""

    def __init__(self, path: Path, locks_dir: Path) -> None:
        self.path = path
        self._lock_path = locks_dir / "collections-lock.lock"
        self._seen: tuple[int, int, int] | None = None
        self._collections: Mapping[str, LockedCollection] = {}

    def read(self) -> Mapping[str, LockedCollection]:
        """Return the state of every collection that was synced; a file that cannot be read counts as none.

        Raises:
            FormatUnsupportedError: a newer version wrote it.
        """
        seen = self._stamp()
        if seen != self._seen:
            self._collections = self._load() if seen else {}
            self._seen = self._stamp()
        return self._collections

    def get(self, collection_id: str) -> LockedCollection | None:
        return self.read().get(collection_id)

    def record(self, collection_id: str, state: LockedCollection | None) -> None:
        """Replace the state of one collection, None takes it out; nothing is written when it is the same.

        Raises:
            FormatUnsupportedError: a newer version wrote the file; it is as it was.
            CollectionError: another process holds it.
        """
        with locked_now(self._lock_path, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                message = f"{self.path} is being changed by another process"
                raise CollectionError(message, code="collections-lock-busy", hint="try again")
            current = dict(self.read())
            if current.get(collection_id) == state:
                return
            current.pop(collection_id, None)
            if state is not None:
                current[collection_id] = state
            FORMAT.write(self.path, {_KEY: {key: _to_dict(current[key]) for key in sorted(current)}})

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _load(self) -> Mapping[str, LockedCollection]:
        try:
            data = FORMAT.read(self.path) or {}
            entries = data.get(_KEY) or {}
            names = [name for name in entries if is_collection_or_profile_name(name)]
            return {name: _from_dict(entries[name]) for name in names}
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            logger.warning("%s cannot be read and counts as missing; the next sync rebuilds it: %s", self.path, error)
            return {}


def _to_dict(state: LockedCollection) -> dict[str, Any]:
    """Return the stored form; keys beyond the usual ones are there only when they say something."""
    value = asdict(state)
    value["profiles"] = {name: _without_none(value["profiles"][name]) for name in sorted(value["profiles"])}
    value["errors"] = [issue.to_dict() for issue in state.errors]
    for optional in ("subpath", "orphaned", "broken"):
        if not value[optional]:
            del value[optional]
    return value


def _without_none(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}


def _from_dict(value: Mapping[str, Any]) -> LockedCollection:
    profiles = {
        name: LockedProfile(item["path"], item.get("version", ""), item.get("hash", ""), item.get("extends"))
        for name, item in (value.get("profiles") or {}).items()
        if is_collection_or_profile_name(name)
    }
    return LockedCollection(
        source=value.get("source") or "",
        commit=value.get("commit"),
        content_hash=value.get("content_hash"),
        synced_at=value.get("synced_at"),
        subpath=value.get("subpath"),
        profiles=profiles,
        orphaned=tuple(name for name in value.get("orphaned") or () if is_collection_or_profile_name(name)),
        broken={name: str(file) for name, file in (value.get("broken") or {}).items()},
        errors=tuple(_issue(item) for item in value.get("errors") or ()),
    )


def _issue(value: Mapping[str, Any] | str) -> Issue:
    if isinstance(value, str):
        return Issue("error", value)
    file = value.get("file")
    known = {key: value[key] for key in ("location", "line", "fix", "severity") if value.get(key) is not None}
    return Issue(value["code"], value["message"], file=Path(file) if file else None, **known)
