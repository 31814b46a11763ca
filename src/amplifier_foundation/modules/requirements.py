"""What a module's folder says it requires."""

import hashlib
import importlib.metadata
import json
import logging
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import Distribution
from pathlib import Path
from threading import Lock
from typing import Any

from amplifier_core import sys_path
from amplifier_core._version import ECOSYSTEM_VERSION
from amplifier_core.packages import ENTRY_POINT_GROUP, folder_name
from amplifier_foundation.sources.store import make_directory, read_json, write_json

logger = logging.getLogger(__name__)

_OTHER_TRANSPORTS = ("rust", "wasm", "grpc")
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_EXTRAS = re.compile(r"\s*[A-Za-z0-9._-]+\s*\[([^\]]*)\]")
_PLAIN = re.compile(r"\s*[A-Za-z0-9._-]+\s*\(?([^()\[\];@]*)\)?\s*")
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)(\d+(?:\.\d+)*)(\.\*)?")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_COMMENT = re.compile(r"(^|\s)#.*$")


def read_requirements(directory: Path) -> tuple[str, ...]:
    """Return the requirement lines of a module's or package's folder, normalised: empty when it needs nothing.

    They are `[project].dependencies` of its `pyproject.toml`, else the lines of its `requirements.txt`. A module that
    is not written in Python has none.
    """
    if _transport_of(directory) in _OTHER_TRANSPORTS:
        return ()
    declared = read_project(directory).get("dependencies")
    if isinstance(declared, list):
        return tuple(dict.fromkeys(normalise(line) for line in declared if isinstance(line, str)))
    return tuple(dict.fromkeys(normalise(line) for line in _lines_of(directory / "requirements.txt", set())))


def read_project(directory: Path) -> dict[str, Any]:
    """Return `[project]` of a folder's `pyproject.toml`, empty when there is none."""
    project = read_toml(directory / "pyproject.toml").get("project")
    return project if isinstance(project, dict) else {}


def read_toml(file: Path) -> dict[str, Any]:
    """Return a TOML file's data; a file that is missing, or not TOML, which is warned about, has none."""
    try:
        info = file.stat()
    except OSError:
        return {}
    return _parse_toml(str(file), info.st_mtime_ns, info.st_size)


def normalise(requirement: str) -> str:
    """Return a requirement in the one form in which it is compared: `Foo_Bar >= 1` is `foo-bar>=1`."""
    text = " ".join(requirement.split())
    found = _NAME.match(text)
    if found is None:
        return text
    rest, semicolon, marker = text[found.end() :].partition("; " if "@" in text else ";")
    rest = rest.strip() if "@" in rest else rest.replace(" ", "")
    separator = " " if rest.startswith("@") else ""
    return f"{normalise_name(found[1])}{separator}{rest}{f'; {marker.strip()}' if semicolon else ''}"


def name_of(requirement: str) -> str:
    """Return the normalised name of the distribution that is required, empty when the text names none."""
    found = _NAME.match(requirement)
    return normalise_name(found[1]) if found else ""


def extras_of(requirement: str) -> frozenset[str]:
    """Return the extras that are required: `httpx2[http2]` has one."""
    found = _EXTRAS.match(requirement)
    names = found[1].split(",") if found else ()
    return frozenset(normalise_name(name.strip()) for name in names if name.strip())


def applies(requirement: str, extras: Iterable[str] = ()) -> bool:
    """True if a requirement counts here: for this Python and system, and for the extras that are wanted."""
    _, semicolon, marker = requirement.partition("; " if "@" in requirement else ";")
    if not semicolon:
        return True
    from packaging.markers import InvalidMarker, Marker  # loaded only where there is a marker to judge

    try:
        judged = Marker(marker.strip())
    except InvalidMarker:
        return True
    return any(judged.evaluate({"extra": extra}) for extra in ("", *extras))


def normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_clearly_met(requirement: str, version: str) -> bool:
    """True if a version meets a requirement beyond doubt.

    Only plain releases and comparisons are judged here; for extras, markers, URLs and pre-releases the answer is False,
    and the installer decides.
    """
    plain = _PLAIN.fullmatch(requirement)
    if plain is None or not _RELEASE.fullmatch(version):
        return False
    clauses = [clause for part in plain[1].split(",") if (clause := part.replace(" ", ""))]
    return all((found := _CLAUSE.fullmatch(clause)) is not None and _holds(found, version) for clause in clauses)


def _holds(clause: re.Match[str], version: str) -> bool:
    operator, bound, wildcard = clause.groups()
    wanted = [int(part) for part in bound.split(".")]
    have = [int(part) for part in version.split(".")]
    width = max(len(wanted), len(have))
    left, right = (numbers + [0] * (width - len(numbers)) for numbers in (have, wanted))
    if wildcard:
        same = left[: len(wanted)] == wanted
        return {"==": same, "!=": not same}.get(operator, False)
    if operator == "~=":
        return len(wanted) > 1 and left >= right and left[: len(wanted) - 1] == wanted[:-1]
    return {
        "==": left == right,
        "!=": left != right,
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right,
        ">": left > right,
    }[operator]


def _transport_of(directory: Path) -> Any:
    section = read_toml(directory / "amplifier.toml").get("module")
    return section.get("transport") if isinstance(section, dict) else None


@lru_cache(maxsize=1024)
def _parse_toml(file: str, modified_ns: int, size: int) -> dict[str, Any]:
    """Parse a file, once for each version of it."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        logger.warning("%s is not readable and counts as absent: %s", file, error)
        return {}


def _lines_of(file: Path, seen: set[Path]) -> list[str]:
    if file in seen or not file.is_file():
        return []
    seen.add(file)
    lines: list[str] = []
    for written in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        line = _COMMENT.sub("", written).strip()
        if included := re.fullmatch(r"(?:-r|--requirement)[\s=]+(.+)", line):
            lines += _lines_of(file.parent / included[1].strip(), seen)
        elif line.startswith("-") or (line and not _NAME.match(line)):
            logger.warning("%s: %r is not a requirement of a distribution and is left out", file, line)
        elif line:
            lines.append(line)
    return lines


# What the host provides: distributions that modules share with it instead of bringing their own.
#
# These are ours, and whatever ours requires, as far as it is installed. Everything else in the host's environment
# is the host's own affair: a module that needs it gets a copy.


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
        """True if nothing needs to be installed for a requirement, as far as that is plain to see."""
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
    """True if the host has a distribution of that name."""
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
