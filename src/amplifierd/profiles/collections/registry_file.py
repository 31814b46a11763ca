"""`share/collections.yaml`: written by people and by us; read again whenever it changed, never written when broken."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from amplifier_foundation.io import load_yaml
from amplifier_foundation.provenance import find_line
from amplifier_foundation.sources.store import locked_now
from amplifierd.exceptions import CollectionError
from amplifierd.identifiers import LOCAL, is_collection_or_profile_name
from amplifierd.issues import Issue
from amplifierd.yaml_edits import edited, mapping_in, replace_text

from .models import CollectionEntry

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

    from amplifierd.yaml_edits import Change

logger = logging.getLogger(__name__)

FILE_INVALID = "collections-file-invalid"

_KEY = "collections"
_LOCK_WAIT_S = 30.0
_TYPES: Mapping[str, tuple[type[Any] | tuple[type[Any], ...], str]] = {
    "source": (str, "a string"),
    "enabled": (bool, "true or false"),
    "auto_sync": (bool, "true or false"),
    "installed_at": ((str, date), "a timestamp"),
}


@dataclass(frozen=True)
class Registry:
    """What the file says, in its order. `is_valid` is False while the file cannot be parsed: the entries are then the
    last good ones. `rejected` are the ids of entries that cannot be used."""

    entries: Mapping[str, CollectionEntry] = field(default_factory=dict)
    issues: tuple[Issue, ...] = ()
    rejected: frozenset[str] = frozenset()
    is_valid: bool = True

    def issues_of(self, collection_id: str) -> tuple[Issue, ...]:
        location = f"{_KEY}.{collection_id}"
        return tuple(issue for issue in self.issues if f"{issue.location}.".startswith(f"{location}."))


class RegistryFile:
    """The registered collections of one home."""

    def __init__(self, path: Path, locks_dir: Path) -> None:
        self.path = path
        self._lock_path = locks_dir / "collections-file.lock"
        self._seen: tuple[int, int, int] | None = None
        self._registry = Registry()

    def read(self) -> Registry:
        """Return what the file says now; a missing or empty one says nothing."""
        seen = self._stamp()
        if seen != self._seen:
            self._registry = self._load() if seen else Registry()
            self._seen = seen
        return self._registry

    def add(self, entry: CollectionEntry) -> None:
        """Append an entry.

        Raises:
            CollectionError: there is one of that id, or the file is broken.
        """

        def change(document: CommentedMap) -> None:
            entries = mapping_in(document, _KEY)
            if entry.identifier in entries:
                raise already_exists(entry.identifier)
            entries[_key(entry.identifier)] = {"source": entry.source, "installed_at": entry.installed_at}

        self._edit(change)

    def update(self, collection_id: str, changes: Mapping[str, Any]) -> None:
        """Set keys of an entry.

        Raises:
            CollectionError: there is no such entry, or the file is broken.
        """

        def change(document: CommentedMap) -> None:
            entries = mapping_in(document, _KEY)
            if collection_id not in entries:
                raise not_found(collection_id)
            if not isinstance(entries[collection_id], Mapping):
                entries[collection_id] = type(entries)(source=entries[collection_id])
            entries[collection_id].update(changes)

        self._edit(change)

    def remove(self, collection_id: str) -> None:
        """Take an entry out; one that is not there is no error.

        Raises:
            CollectionError: the file is broken.
        """
        self._edit(lambda document: mapping_in(document, _KEY).pop(collection_id, None))

    def check_writable(self) -> None:
        """Raise if the file must not be written.

        Raises:
            CollectionError: the file is broken.
        """
        registry = self.read()
        if not registry.is_valid:
            raise _broken(registry.issues[0].message)

    def _edit(self, change: Change) -> None:
        from ruamel.yaml.error import YAMLError  # loaded when the file is changed

        with self._locked():
            self.check_writable()
            text = self.path.read_text(encoding="utf-8-sig") if self.path.exists() else ""
            try:
                after = edited(text, change)
            except YAMLError as error:
                raise _broken(f"{self.path} is not valid YAML: {error}") from error
            replace_text(self.path, after)
            self.read()  # the last good registry, in case the file is broken next

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked_now(self._lock_path, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                message = f"{self.path} is being changed by another process"
                raise CollectionError(message, code="collections-file-busy", hint="try again")
            yield

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _load(self) -> Registry:
        try:
            text = self.path.read_text(encoding="utf-8-sig")
            data = load_yaml(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
            problem = f"{where}{getattr(error, 'problem', None) or error}"
            return self._keep_last_good(problem, mark.line + 1 if mark else None)
        except (OSError, UnicodeDecodeError) as error:
            return self._keep_last_good(str(error), None)
        entries = data.get(_KEY) if isinstance(data, dict) else data
        if entries is not None and not (isinstance(data, dict) and isinstance(entries, dict)):
            return self._keep_last_good(f"line 1, column 1: '{_KEY}' must be a mapping of ids to entries", 1)
        return _read_entries(entries or {}, self.path, text)

    def _keep_last_good(self, problem: str, line: int | None) -> Registry:
        message = f"{self.path} is not valid: {problem}"
        logger.warning("%s; the collections known before stay", message)
        issue = Issue(FILE_INVALID, message, file=self.path, line=line, fix="correct the file by hand")
        return Registry(self._registry.entries, (issue,), self._registry.rejected, is_valid=False)


def not_found(collection_id: str) -> CollectionError:
    return CollectionError(f"Collection not found: {collection_id}", code="collection-not-found")


def already_exists(collection_id: str) -> CollectionError:
    return CollectionError(f"Collection already exists: {collection_id}", code="collection-exists")


def _broken(message: str) -> CollectionError:
    return CollectionError(message, code=FILE_INVALID, hint="correct the file by hand; nothing was written")


def _key(collection_id: str) -> str:
    """Return an id as a key that YAML reads as a text again: `on` or `123` alone would be something else."""
    from ruamel.yaml.scalarstring import SingleQuotedScalarString  # loaded when the file is changed

    return collection_id if isinstance(load_yaml(collection_id), str) else SingleQuotedScalarString(collection_id)


def _read_entries(entries: Mapping[Any, Any], file: Path, text: str) -> Registry:
    read: dict[str, CollectionEntry] = {}
    issues: list[Issue] = []
    for key, value in entries.items():
        problems = [replace(issue, line=_find_line(text, key, issue)) for issue in _problems(key, value, file)]
        issues += problems
        if all(problem.severity == "warning" for problem in problems):
            read[key] = _entry(key, value)
    for issue in issues:
        logger.warning("%s", issue)
    return Registry(read, tuple(issues), frozenset(str(key) for key in entries if key not in read))


def _find_line(text: str, key: Any, issue: Issue) -> int | None:
    inner = issue.location.removeprefix(f"{_KEY}.{key}").lstrip(".")
    return find_line(text, (_KEY, str(key), *([inner] if inner else [])), is_markdown=False)


def _problems(key: Any, value: Any, file: Path) -> Iterator[Issue]:
    location = f"{_KEY}.{key}"
    if not isinstance(key, str) or not is_collection_or_profile_name(key):
        fix = "an id begins with a lower-case letter or digit and has at most 64 of a-z 0-9 . _ -; quote on, off or 123"
        yield Issue("invalid-identifier", f"Invalid collection id {key!r}", location, file, fix=fix)
        return
    if key == LOCAL:
        message = f"'{LOCAL}' is reserved for your own profiles and cannot be registered"
        yield Issue("reserved-collection", message, location, file, fix="take the entry out, or give it another id")
        return
    entry = {"source": value} if isinstance(value, str) else value
    if not isinstance(entry, dict):
        fix = "write a source, or source: <reference> below it"
        yield Issue("wrong-type", f"{location} must be a source or a mapping", location, file, fix=fix)
        return
    if not entry.get("source"):
        yield Issue("source-missing", f"{location} has no source", location, file, fix="add source: <reference>")
    for name, item in entry.items():
        kind, expected = _TYPES.get(name, (object, ""))
        if name not in _TYPES:
            message = f"Unknown key '{name}'"
            fix = f"use {', '.join(_TYPES)}"
            yield Issue("unknown-key", message, f"{location}.{name}", file, fix=fix, severity="warning")
        elif item is not None and not isinstance(item, kind):
            message = f"{location}.{name} must be {expected}"
            yield Issue("wrong-type", message, f"{location}.{name}", file, fix=f"write {expected} there")
        elif name == "installed_at" and isinstance(item, str) and not _is_time(item):
            message = f"{location}.{name} is not a date: {item!r}"
            fix = "write a date and time such as 2026-01-31T12:00:00Z, or take it out"
            yield Issue("wrong-type", message, f"{location}.{name}", file, fix=fix, severity="warning")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _entry(collection_id: str, value: Any) -> CollectionEntry:
    entry = {"source": value} if isinstance(value, str) else value
    return CollectionEntry(
        identifier=collection_id,
        source=entry["source"],
        enabled=entry.get("enabled") is not False,
        auto_sync=entry.get("auto_sync") is not False,
        installed_at=_timestamp(entry.get("installed_at")),
    )


def _timestamp(value: str | date | None) -> str | None:
    """YAML reads a bare timestamp into a value of its own."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date | datetime) else value


FOUNDATION = "foundation"
"""The id of the collection shipped with the distribution; an entry of that name replaces it."""

BUILTIN_SOURCE = f"builtin:{FOUNDATION}"
"""How the source of the shipped collection is shown; it is not a reference."""


def find_shipped_collection() -> Path | None:
    """Return the directory of the shipped collection: in the installed package, else in the checkout it runs from."""
    package = resources.files("amplifierd")
    if not isinstance(package, Path):
        return None
    candidates = (package / "_registry", package.parent.parent / "registry")
    return next((path for path in candidates if path.is_dir()), None)
