"""The files of a resource: listed, hashed, copied; and what stands for their hash while they are unchanged."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources.resolved import IGNORED_NAMES, IGNORED_PATTERNS
from amplifier_foundation.sources.store import make_directory, read_json
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths
from amplifierd.stored_json import KEY, write_json

_VERSION = 1
_CHUNK = 1024 * 1024
_SUFFIXES = tuple(pattern.removeprefix("*") for pattern in IGNORED_PATTERNS)


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A regular file, and its path inside the resource; that is empty for a resource that is one file."""

    path: str
    name: str
    size: int
    modified_ns: int
    is_executable: bool


Content = tuple[ContentFile, ...]


def list_content(parts: Mapping[str, Path], *, boundary: Path, ref: str) -> Content:
    """Return the files of a resource that is made of `parts` (name in the resource → file or directory).

    What builds and tools leave behind is skipped. A link counts as what it leads to, inside `boundary`.

    Raises:
        RefResolutionError: a link leads out of `boundary`, in a circle or nowhere, or something is not a regular file.
    """
    root = os.path.realpath(boundary)
    found = ((name, _real(str(path), name or path.name, root, ref)) for name, path in parts.items())
    return tuple(file for name, path in found for file in _walk(path, name, root, ref, ()))


def fingerprint(content: Content) -> str:
    """Return what changes whenever a file is written, added, renamed or removed, told without reading any."""
    lines = sorted(f"{file.name}\0{file.size}\0{file.modified_ns}\0{file.is_executable:d}\n" for file in content)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def look(directory: Path) -> str:
    """Return what changes whenever a file of a tree is changed, and cannot be put back; no file is opened.

    It has the time at which the status of a file changed, and the file's number: whoever writes cannot choose them.
    """
    lines: list[str] = []
    waiting, start = [str(directory)], len(str(directory)) + 1
    while waiting:
        with os.scandir(waiting.pop()) as found:
            for child in found:
                if is_leftover(child.name):
                    continue
                if child.is_dir(follow_symlinks=False):
                    waiting.append(child.path)
                else:
                    known = child.stat(follow_symlinks=False)
                    times = f"{known.st_mtime_ns}\0{known.st_ctime_ns}"
                    lines.append(f"{child.path[start:]}\0{known.st_size}\0{times}\0{known.st_ino}\0{known.st_mode}\n")
    return hashlib.sha256("".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def hash_files(content: Content) -> str:
    """Return `sha256:<hex>`: the same as `hash_content` of a copy."""
    return _join((file, _read(file.path)) for file in content)


def copy_files(content: Content, target: Path, *, check: Callable[[], None]) -> str:
    """Copy a resource to `target`, and return the hash of what was written. `check` may raise to end it early."""
    return _join((file, _copy(file, target / file.name if file.name else target, check)) for file in content)


def fingerprints_file(paths: Paths, profile_id: ProfileId) -> Path:
    """Return where a profile's fingerprints are kept."""
    return paths.cache / "fingerprints" / profile_id.collection / f"{profile_id.name}.json"


def is_leftover(name: str) -> bool:
    """True if a file or directory of this name is what builds and tools leave behind, which does not count."""
    return name in IGNORED_NAMES or name.endswith(_SUFFIXES)


class Fingerprints:
    """What is known of the files that a profile's build was made from, in a file below `cache/`.

    A hash that is asked for is read from the files once for each fingerprint. `save` keeps what was learnt; losing the
    file costs time, nothing else.
    """

    def __init__(self, paths: Paths, profile_id: ProfileId) -> None:
        self._path = fingerprints_file(paths, profile_id)
        stored = read_json(self._path) or {}
        known: Any = stored if stored.get(KEY) == _VERSION else {}
        self._sources: dict[str, dict[str, str]] = dict(known.get("sources") or {})
        self._damaged: dict[str, list[str]] = dict(known.get("damaged") or {})
        self._has_changed = False

    def hash_of(self, key: str, content: Content, *, always: bool = False) -> str:
        """Return the hash of files that are known by `key`; `always` reads them even if their fingerprint is known."""
        seen = fingerprint(content)
        known = self._sources.get(key)
        if not always and known is not None and known.get("fingerprint") == seen and "hash" in known:
            return known["hash"]
        found = {"fingerprint": seen, "hash": hash_files(content)}
        if found != known:
            self._sources[key] = found
            self._has_changed = True
        return found["hash"]

    def learn(self, key: str, content: Content, content_hash: str) -> None:
        """Remember a hash that was found while the files were copied."""
        found = {"fingerprint": fingerprint(content), "hash": content_hash}
        self._has_changed |= self._sources.get(key) != found
        self._sources[key] = found

    def damaged(self, build: Path) -> frozenset[str]:
        """Return the resources of a build that a verification found to be modified."""
        return frozenset(self._damaged.get(build.name, ()))

    def note_damage(self, build: Path, resources: Iterable[str]) -> None:
        """Remember what a verification found; only the last build's findings are kept."""
        found = {build.name: sorted(resources)}
        found = found if found[build.name] else {}
        self._has_changed |= found != self._damaged
        self._damaged = found

    def forget_except(self, keys: Iterable[str]) -> None:
        """Keep only what is known of these."""
        kept = {key: self._sources[key] for key in keys if key in self._sources}
        self._has_changed |= kept != self._sources
        self._sources = kept

    async def save_if_changed(self) -> None:
        """Write what was learnt, off the event loop; most of the time nothing was."""
        if self._has_changed:
            await asyncio.to_thread(self.save)

    def save(self) -> None:
        """Write what was learnt since it was read, if anything."""
        if self._has_changed:
            content = {KEY: _VERSION, "sources": self._sources, "damaged": self._damaged}
            write_json(self._path, content, lasting=False)
            self._has_changed = False


def _walk(path: str, name: str, root: str, ref: str, above: tuple[str, ...]) -> Iterator[ContentFile]:
    """Yield the files at a path whose own links, but not those below it, are resolved."""
    status = _stat(path, name, ref)
    if stat.S_ISREG(status.st_mode):
        yield ContentFile(path, name, status.st_size, status.st_mtime_ns, bool(status.st_mode & 0o100))
        return
    if not stat.S_ISDIR(status.st_mode):
        raise _unsafe(f"{name!r} is neither a file nor a directory", ref)
    if path in above:
        raise _unsafe(f"{name!r} is a link that leads in a circle", ref)
    with os.scandir(path) as found:
        children = [(child.name, child.is_symlink()) for child in found]
    for child, is_link in sorted(children):
        if not is_leftover(child):
            inner = f"{name}/{child}" if name else child
            below = f"{path}/{child}"
            yield from _walk(_real(below, inner, root, ref) if is_link else below, inner, root, ref, (*above, path))


def _real(path: str, name: str, root: str, ref: str) -> str:
    real = os.path.realpath(path)
    if real != root and not real.startswith(f"{root.rstrip('/')}/"):
        raise _unsafe(f"{name!r} leads out of its source, to {real!r}", ref)
    return real


def _stat(path: str, name: str, ref: str) -> os.stat_result:
    try:
        return os.stat(path)  # noqa: PTH116 - asked for every file of every resource
    except OSError as error:
        raise _unsafe(f"{name!r} leads nowhere", ref) from error


def _unsafe(problem: str, ref: str) -> RefResolutionError:
    hint = "replace the link by the file it should be"
    return RefResolutionError(f"{problem} ({ref})", ref, "unsafe-path", hint=hint)


def _join(digests: Iterable[tuple[ContentFile, str]]) -> str:
    found = list(digests)
    if len(found) == 1 and not found[0][0].name:
        return f"sha256:{found[0][1]}"
    lines = sorted(
        os.fsencode(file.name) + (b"\0001\0" if file.is_executable else b"\0000\0") + digest.encode() + b"\n"
        for file, digest in found
    )
    return f"sha256:{hashlib.sha256(b''.join(lines)).hexdigest()}"


def _read(path: str) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _copy(file: ContentFile, target: Path, check: Callable[[], None]) -> str:
    check()
    make_directory(target.parent)
    digest = hashlib.sha256()
    with Path(file.path).open("rb") as source, target.open("xb") as copy:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
    target.chmod(0o555 if file.is_executable else 0o444)
    return digest.hexdigest()
