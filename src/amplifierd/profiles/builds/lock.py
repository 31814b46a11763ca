"""`profile.lock`: what a build was made of. It has no path of this machine, except where an author wrote one."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS
from amplifier_foundation.paths import parse_uri
from amplifier_foundation.sources import is_commit
from amplifier_foundation.sources.store import now
from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.identifiers import mount_type
from amplifierd.profiles.documents.inheritance import MergedProfile
from amplifierd.stored_json import KEY, write_json

FILE_NAME = "profile.lock"
VERSION = 1
DEPENDENCIES_DIR = ".deps"
DEPENDENCY_MISSING = "dependency-missing"
"""How the warning begins about a requirement that could not be met."""
DEPENDENCY_REASON = "dependency-reason"
"""How the warning begins about why a module's requirements could not be met."""

NAMED_RESOURCES = ("agents", "contexts")
SECTIONS = (*SESSION_MEMBERS, *MODULE_SECTIONS, *NAMED_RESOURCES)
"""The parts of a lock's `resources`, which are also the directories of a build."""

_TIMES = ("generated_at", "resolved_at")

ResourceKey = tuple[str, str]
"""Section and name: what one resource is known by."""


class LockUnusableError(Exception):
    """There is no lock, or nothing can be read from it; `code` is `lock-missing` or `lock-corrupt`."""

    def __init__(self, code: Literal["lock-missing", "lock-corrupt"], message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class ProfileLock:
    """A lock as stored, in the current format; `stored_version` is the format it was found in."""

    data: Mapping[str, Any]
    stored_version: int = VERSION

    @property
    def build_id(self) -> str:
        return str(self.data["build_id"])

    @property
    def profile_hash(self) -> str:
        return str(self.data["profile_hash"]).removeprefix("sha256:")

    @property
    def chain(self) -> list[tuple[str, str]]:
        return [(str(link["profile"]), str(link["hash"]).removeprefix("sha256:")) for link in self.data["chain"]]

    @property
    def degraded(self) -> tuple[str, ...]:
        """The modules that the build lacks, or that lack what they require."""
        return tuple(self.data["degraded"])

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.data["warnings"])

    @property
    def dependencies(self) -> Mapping[str, Any] | None:
        """The directory that the build's dependencies are in, and its hash; `None` when it has none."""
        return self.data.get("dependencies")

    @property
    def written(self) -> Mapping[str, str]:
        """The texts of the build, plan, instruction and origins, with their hashes; none in older builds."""
        found = self.data.get("written")
        return found if isinstance(found, Mapping) else {}

    def modules(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of all modules, the session's first."""
        return (entry for (section, _), entry in self.resources() if section not in NAMED_RESOURCES)

    def resources(self) -> Iterator[tuple[ResourceKey, Mapping[str, Any]]]:
        """Yield every entry with what it is known by."""
        return _entries_in(self.data["resources"])

    def pins(self, origin: Literal["build", "host"]) -> tuple[str, ...]:
        """Return the exact versions that were installed into the build, or that the host provides."""
        found = {
            pin["pin"] for entry in self.modules() for pin in entry.get("requirements") or () if pin["from"] == origin
        }
        return tuple(sorted(found))

    def is_same_build(self, other: ProfileLock) -> bool:
        """True if two locks differ in nothing but times."""
        return bool(_without_times(self.data) == _without_times(other.data))


def read_lock(directory: Path) -> ProfileLock:
    """Return the lock in a profile's directory, in the current format whatever its own; nothing is written.

    Raises:
        LockUnusableError: there is none, or nothing can be read from it.
        FormatUnsupportedError: a newer version wrote it.
    """
    path = directory / FILE_NAME
    try:
        data = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LockUnusableError("lock-missing", f"there is no {path}") from error
    except (OSError, ValueError) as error:
        raise LockUnusableError("lock-corrupt", f"{path} cannot be read: {error}") from error
    return parse_lock(data, str(path))


def parse_lock(data: Any, where: str) -> ProfileLock:
    """Return the lock that stored data is, in the current format whatever its own; `where` is where it was found.

    Raises:
        LockUnusableError: it is not a lock.
        FormatUnsupportedError: a newer version wrote it.
    """
    version = data.get(KEY, 0) if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise LockUnusableError("lock-corrupt", f"{where} is not a lock")
    if version > VERSION:
        raise FormatUnsupportedError(
            f"{where} has format {version}, this version reads up to {VERSION}",
            hint="use the version that wrote it, or a newer one",
        )
    try:
        lock = ProfileLock(data if version == VERSION else _from_version_0(data), version)
        _check(lock)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LockUnusableError("lock-corrupt", f"{where} is incomplete: {error!r}") from error
    return lock


def write_lock(directory: Path, lock: ProfileLock) -> None:
    write_json(directory / FILE_NAME, lock.data)


def make_lock(
    merged: MergedProfile,
    resources: Mapping[ResourceKey, Mapping[str, Any]],
    *,
    dependencies: Mapping[str, Any] | None = None,
    written: Mapping[str, str],
    degraded: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> ProfileLock:
    """Return the lock of a new build; `resources` are in the profile's order, `written` are the hashes of its texts."""
    data: dict[str, Any] = {
        "generated_at": now(),
        "profile_hash": merged.document.profile_hash,
        KEY: VERSION,
        "build_id": compute_build_id(merged, resources.items()),
        "python": python_version(),
        "platform": platform_name(),
        "chain": [{"profile": profile, "hash": digest} for profile, digest in chain_of(merged)],
        "resources": _grouped(resources),
        "degraded": list(degraded),
        "warnings": list(warnings),
        "written": dict(written),
    }
    return ProfileLock(data | ({"dependencies": dict(dependencies)} if dependencies else {}))


def compute_build_id(merged: MergedProfile, resources: Iterable[tuple[ResourceKey, Mapping[str, Any]]]) -> str:
    """Return the identity of what a profile and these resources make on this Python and platform."""
    found = dict(resources)
    inputs = {
        "profile": {
            "metadata": _plain(merged.document.metadata),
            "sections": _plain(merged.sections),
            "body": merged.body,
        },
        "content": {f"{section}/{name}": entry.get("content_hash") for (section, name), entry in found.items()},
        "pins": sorted({pin["pin"] for entry in found.values() for pin in entry.get("requirements") or ()}),
        "python": python_version(),
        "platform": platform_name(),
    }
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chain_of(merged: MergedProfile) -> list[tuple[str, str]]:
    """Return a profile's ancestors, the root first, with the hashes of their texts."""
    return [(str(document.profile_id), document.profile_hash) for document in merged.ancestors]


def resource_path(key: ResourceKey) -> str:
    """Return where in a build a resource is."""
    section, name = key
    return f"{section}/{name}.md" if section == "agents" else f"{section}/{name}"


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def platform_name() -> str:
    return f"{sys.platform}-{platform.machine()}"


def _grouped(resources: Mapping[ResourceKey, Mapping[str, Any]]) -> dict[str, Any]:
    grouped: dict[str, Any] = {}
    for section in SECTIONS:
        found = {name: dict(entry) for (owner, name), entry in resources.items() if owner == section}
        if section in SESSION_MEMBERS:
            grouped |= {section: next(iter(found.values()))} if found else {}
        else:
            grouped[section] = found if section in NAMED_RESOURCES else list(found.values())
    return grouped


def _entries_in(stored: Mapping[str, Any]) -> Iterator[tuple[ResourceKey, Mapping[str, Any]]]:
    """Yield the entries in a lock's `resources`: one for a member of the session, lists of modules, files by name."""
    for section in SECTIONS:
        found = stored.get(section)
        if found and section in SESSION_MEMBERS:
            yield (section, found["name"]), found
        elif found and section in NAMED_RESOURCES:
            yield from (((section, name), entry) for name, entry in found.items())
        elif found:
            yield from (((section, entry["name"]), entry) for entry in found)


def _from_version_0(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a lock that only has the stable core, with what follows from it; hashes are found when it is used."""
    resources = {key: dict(entry) for key, entry in _entries_in(data["resources"])}
    for key, entry in resources.items():
        _complete(key, entry)
    return {
        "generated_at": data.get("generated_at"),
        "profile_hash": data["profile_hash"],
        KEY: VERSION,
        **{"build_id": "", "python": "", "platform": "", "chain": [], "degraded": [], "warnings": []},
        **{key: value for key, value in data.items() if key in ("build_id", "python", "platform", "chain")},
        "resources": _grouped(resources),
    }


def _complete(key: ResourceKey, entry: dict[str, Any]) -> None:
    ref = entry.get("ref")
    written = str(ref or "")
    parsed = parse_uri(written)
    is_local = parsed.is_file or not parsed.scheme
    kind = "installed" if ref is None else "git" if parsed.is_git else "" if is_local else "fsspec"
    pinned = is_commit(parsed.written_ref)
    defaults: dict[str, Any] = {
        "commit": None,
        "resolved_at": None,
        "kind": kind or "local",
        "content_hash": None,
        "path": None if kind == "installed" else resource_path(key),
        "mutable": not pinned,
        "requirements": [],
        "status": "ok",
    }
    for name, value in defaults.items():
        entry.setdefault(name, value)


def _check(lock: ProfileLock) -> None:
    """Touch everything that is read of a lock, and check the paths, which must stay inside the build."""
    if not all(isinstance(text, str) for text in (lock.data["build_id"], lock.data["profile_hash"])):
        raise TypeError("build_id and profile_hash are texts")
    _ = lock.chain, lock.degraded, lock.warnings, lock.pins("build"), lock.data["python"], lock.data["platform"]
    if lock.dependencies is not None and lock.dependencies["path"] != DEPENDENCIES_DIR:
        raise ValueError("dependencies are elsewhere")
    for key, entry in lock.resources():
        if entry["path"] not in (None, resource_path(key)):
            raise ValueError(f"{key} is elsewhere")
        if key[0] in (*SESSION_MEMBERS, *MODULE_SECTIONS) and mount_type(key[1]) != key[0]:
            raise ValueError(f"{key} is in another section")
        _ = entry["ref"], entry["commit"], entry["kind"], entry["content_hash"], entry["mutable"], entry["status"]


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_times(item) for key, item in value.items() if key not in _TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Return a value of a profile as JSON has it: YAML also knows dates, and keys that are not strings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
