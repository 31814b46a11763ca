"""What the host provides: distributions that modules share with it instead of bringing their own.

These are ours, and whatever ours requires, as far as it is installed. Everything else in the host's environment is the
host's own affair: a module that needs it gets a copy.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import Distribution
from pathlib import Path
from threading import Lock

from amplifier_core import sys_path
from amplifier_core._version import ECOSYSTEM_VERSION
from amplifier_core.packages import ENTRY_POINT_GROUP, folder_name
from amplifier_foundation.sources.store import make_directory, read_json, write_json

from .requirements import applies, extras_of, is_clearly_met, name_of, normalise_name

DISTRIBUTION = "amplifier"
_CLAIMED = dict.fromkeys(("amplifier-core", "amplifier-foundation"), ECOSYSTEM_VERSION)
_OURS = (*_CLAIMED, "amplifier-kit")
_FORMAT = 1
_TOLD_USERS = 3
_REQUIRES = re.compile(r"^Requires-Dist:(.*)$", re.MULTILINE | re.IGNORECASE)
_VERSION = re.compile(r"^Version:(.*)$", re.MULTILINE | re.IGNORECASE)

State = tuple[tuple[str, int], ...]
Extras = frozenset[str] | None

_known: dict[tuple[State, Extras], "HostPackages"] = {}
_reading = Lock()


@dataclass(frozen=True)
class HostPackages:
    """The provided distributions, by normalised name, with their versions.

    Those in `ours` are parts of one distribution, which no other takes the place of: they satisfy any version.
    """

    versions: dict[str, str]
    ours: frozenset[str] = frozenset()
    directories: tuple[str, ...] = field(default=(), compare=False)

    def provides(self, name: str) -> bool:
        return name in self.versions

    def satisfies(self, requirement: str) -> bool:
        """Say whether nothing needs to be installed for a requirement, as far as that is plain to see."""
        name = name_of(requirement)
        return name in self.ours or (name in self.versions and is_clearly_met(requirement, self.versions[name]))

    def constraints(self, requirements: Iterable[str] | None = None) -> list[str]:
        """Return `name==version` of all that is provided, or of what the requirements name, sorted."""
        names = self.versions if requirements is None else {name_of(line) for line in requirements} & set(self.versions)
        return sorted(f"{name}=={self.versions[name]}" for name in names)

    def users_of(self, requirement: str) -> str:
        """Say, for a person, which provided distributions require one: ` (required by ddgs)`; empty when none does."""
        name, users = name_of(requirement), []
        for user in sorted(self.versions.keys() - self.ours):
            if name in map(name_of, _REQUIRES.findall(self.metadata_of(user))):
                users.append(user)
        more = ["and others"] if len(users) > _TOLD_USERS else []
        return f" (required by {', '.join([*users[:_TOLD_USERS], *more])})" if users else ""

    def metadata_of(self, name: str) -> str:
        """Return the head of a provided distribution's metadata: name, version, extras and what it requires."""
        if name not in self.ours and (found := _find(name, self.directories)) is not None:
            return _head(found)
        return f"Metadata-Version: 2.1\nName: {name}\nVersion: {self.versions[name]}\n"


def host_packages(cache_dir: Path | None = None, *, extras: Iterable[str] | None = None) -> HostPackages:
    """Return what the host provides; blocks while it reads.

    `extras` are those of ours that count; by default everything that any of them brings does.

    The answer is kept, in the process and in a file of the cache directory, for as long as the directories of installed
    distributions are unchanged.
    """
    state, wanted = tuple(_installation()), None if extras is None else frozenset(extras)
    with _reading:  # modules are prepared at the same time, and one reader is enough
        if (state, wanted) not in _known:
            found = _stored(state, wanted, cache_dir) if cache_dir is not None else _read(state, wanted)
            _known[state, wanted] = found
        return _known[state, wanted]


def is_installed(name: str) -> bool:
    """Say whether the host has a distribution of that name."""
    return _find(name, tuple(directory for directory, _ in _installation())) is not None


def _installation() -> Iterator[tuple[str, int]]:
    """Yield the directories of installed distributions and when they changed; those of bundles are not the host's."""
    ours = sys_path.held_entries()
    for entry in dict.fromkeys(sys.path):
        if entry and entry not in ours:
            try:
                modified_ns = os.stat(entry).st_mtime_ns  # noqa: PTH116 - asked for every module
            except OSError:
                continue
            if _holds_distributions(entry, modified_ns):
                yield entry, modified_ns


@lru_cache(maxsize=256)
def _holds_distributions(directory: str, modified_ns: int) -> bool:
    try:
        return any(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(directory))  # noqa: PTH208 - names
    except OSError:
        return False


def _stored(state: State, extras: Extras, cache_dir: Path) -> HostPackages:
    directories = tuple(directory for directory, _ in state)
    counted = ["extras", *sorted(extras)] if extras is not None else []
    key = hashlib.sha256("\0".join((sys.version, *directories, *counted)).encode()).hexdigest()[:16]
    file = cache_dir / "fingerprints" / f"host-{key}.json"
    listed = json.loads(json.dumps(state))
    stored = read_json(file) or {}
    if stored.get("format_version") == _FORMAT and stored.get("directories") == listed:
        return HostPackages(stored["versions"], frozenset(stored["ours"]), directories)
    packages = _read(state, extras)
    content = {"format_version": _FORMAT, "directories": listed, "versions": packages.versions}
    make_directory(file.parent)
    write_json(file, {**content, "ours": sorted(packages.ours)})
    return packages


def _read(state: State, extras: Extras) -> HostPackages:
    directories = tuple(directory for directory, _ in state)
    host = _find(DISTRIBUTION, directories)
    if host is None:
        ours = frozenset((DISTRIBUTION, *_OURS))
        return HostPackages({**dict.fromkeys(sorted(ours), "0"), **_CLAIMED}, ours, directories)
    modules = (point.name for point in host.entry_points if point.group == ENTRY_POINT_GROUP)
    ours = frozenset((*_OURS, *(normalise_name(folder_name(module_id)) for module_id in modules)))
    versions = {DISTRIBUTION: host.version, **dict.fromkeys(ours, host.version), **_CLAIMED}
    waiting, seen = list(_required_by(_head(host), extras)), {(name, frozenset[str]()) for name in versions}
    while waiting:
        name, wanted = needed = waiting.pop()
        if needed in seen:
            continue
        seen.add(needed)
        if (found := _find(name, directories)) is not None and (version := _VERSION.search(head := _head(found))):
            versions[name] = version[1].strip()
            waiting += _required_by(head, None if extras is None else wanted)
    return HostPackages(versions, ours, directories)


def _find(name: str, directories: tuple[str, ...]) -> Distribution | None:
    found: Iterable[Distribution] = importlib.metadata.distributions(name=name, path=list(directories))
    return next(iter(found), None)


def _head(distribution: Distribution) -> str:
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return re.split(r"\n\s*\n", text, maxsplit=1)[0].rstrip("\n") + "\n"


def _required_by(head: str, extras: Extras) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the names of all that a distribution requires, with their extras; None stands for every extra."""
    lines = (line for line in _REQUIRES.findall(head) if extras is None or applies(line, extras))
    return ((name, frozenset() if extras is None else extras_of(line)) for line in lines if (name := name_of(line)))
