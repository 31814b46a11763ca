"""The file of an exported session: a zip of JSON files, a manifest with the hash of each, and a signature of that.

The same sessions always give the same bytes. Reading trusts nothing: names, sizes and hashes are those of the manifest
or the file is refused, and no more is unpacked than the limits allow, whatever the file claims.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from amplifier_core import __version__
from amplifier_foundation.sources import Progress, ProgressEvent
from amplifier_foundation.sources.resolved import Phase, report
from amplifier_system.files import Replacement
from amplifier_system.zip_files import UnsafeZipError, open_untrusted
from amplifierd.exceptions import FormatUnsupportedError, SessionImportError
from amplifierd.stored_json import json_text

SUFFIX = ".amplifier-session"
FORMAT = "amplifier-session"
FORMAT_VERSION = 1

MANIFEST, SIGNATURE = "manifest.json", "signature.json"

Sign = Callable[[bytes], Mapping[str, str]]
Step = Callable[[int], None]
"""Is told how many bytes more are done."""

_NAME = re.compile(r"sessions/[0-9]{1,5}/[a-z_]{1,40}\.jsonl?")
_BEGINNING_OF_TIME = (1980, 1, 1, 0, 0, 0)
_PLAIN_FILE = 0o600 << 16
_MOST_FILES = 50_000
_LARGEST_MANIFEST = 16 << 20
_PIECE = _MIB = 1 << 20
_REPORT_INTERVAL_S = 0.5


class Advance:
    """How far a file is that is written or read, in bytes; `progress` hears of it now and then."""

    def __init__(self, progress: Progress | None, what: str, path: Path) -> None:
        self._progress, self._what, self._path = progress, what, path
        self._done = 0
        self._reported_s = time.monotonic()

    def count(self, size: int) -> None:
        self._done += size
        if time.monotonic() - self._reported_s > _REPORT_INTERVAL_S:
            self._reported_s = time.monotonic()
            self._report("fetching")

    def finish(self) -> None:
        self._report("ready")

    def _report(self, phase: Phase) -> None:
        detail = f"{self._done / _MIB:,.0f} MiB"
        report(self._progress, ProgressEvent(self._what, str(self._path), phase, detail=detail))


@dataclass(frozen=True)
class ArchiveLimits:
    """How much is unpacked at most."""

    total_bytes: int = 1 << 30
    file_bytes: int = 512 << 20


@dataclass(frozen=True)
class SessionArchive:
    """What was read from a file: where its `files` are unpacked, and the exact bytes that `signature` is about."""

    path: Path
    manifest: Mapping[str, Any]
    files: Mapping[str, Path]
    signed: bytes
    signature: Mapping[str, Any] | None


def write_archive(
    path: Path, files: Mapping[str, Path], about: Mapping[str, Any], sign: Sign, step: Step = lambda count: None
) -> Mapping[str, str]:
    """Write a file in one step, for the owner alone, and return its signature; `step` is told of bytes that went in."""
    hashes = {name: _measured(file) for name, file in sorted(files.items())}
    heading = {"format": FORMAT, "format_version": FORMAT_VERSION, "written_by": f"amplifier {__version__}"}
    manifest = json_text({**heading, **about, "files": hashes})
    signature = sign(manifest)
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with Replacement(directory) as made:
            with zipfile.ZipFile(made.file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
                archive.writestr(_entry(MANIFEST, len(manifest)), manifest)
                archive.writestr(_entry(SIGNATURE, 0), json_text(dict(signature)))
                for name, file in sorted(files.items()):
                    with file.open("rb") as source, archive.open(_entry(name, hashes[name]["size"]), "w") as target:
                        for piece in _pieces(source):
                            target.write(piece)
                            step(len(piece))
            made.sync()
            made.take_place(path.name)
        os.fsync(directory)
    finally:
        os.close(directory)
    return signature


def unpack_archive(
    path: Path, folder: Path, limits: ArchiveLimits | None = None, step: Step = lambda count: None
) -> SessionArchive:
    """Unpack a file into a folder, checked against its manifest. The signature is not judged here.

    Raises:
        FormatUnsupportedError: a newer version wrote it.
        SessionImportError: it is not such a file, it was changed or damaged, or it is too large.
    """
    limits = limits or ArchiveLimits()
    try:
        if path.stat().st_size > limits.total_bytes:
            raise _too_large(path, "it", limits.total_bytes)
        with open_untrusted(path, most_entries=_MOST_FILES) as archive:
            return _Reader(path, archive, folder, limits, step).read()
    except UnsafeZipError as error:
        raise _refused(path, str(error)) from error
    except OSError as error:
        raise SessionImportError(f"{path} cannot be read: {error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _refused(path, f"it is damaged, or not an exported session ({type(error).__name__})") from error


class _Reader:
    """Unpacks one file, and counts what it unpacks."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, folder: Path, limits: ArchiveLimits, step: Step) -> None:
        self._path, self._archive, self._limits = path, archive, limits
        self._folder, self._step = folder, step
        self._left = limits.total_bytes

    def read(self) -> SessionArchive:
        names, promised = self._archive.namelist(), sum(entry.file_size for entry in self._archive.infolist())
        if promised > self._left:
            raise _too_large(self._path, "what is in it", self._left)
        if len(set(names)) != len(names):
            raise _refused(self._path, "it contains a file twice")
        if MANIFEST not in names:
            raise _refused(self._path, f"it has no {MANIFEST}")
        signed = self._unpack(MANIFEST, _LARGEST_MANIFEST)
        manifest = _parse_object(signed, self._path, MANIFEST)
        self._check_format(manifest)
        listed = self._listed(manifest)
        strangers = sorted((set(names) - {MANIFEST, SIGNATURE}) ^ set(listed))
        if strangers:
            raise _refused(self._path, f"its manifest and its files do not agree on {strangers[0]!r}")
        files = {
            name: self._checked(name, expected, self._folder / str(number))
            for number, (name, expected) in enumerate(listed.items())
        }
        signature = None
        if SIGNATURE in names:
            signature = _parse_object(self._unpack(SIGNATURE, 1 << 16), self._path, SIGNATURE)
        return SessionArchive(self._path, manifest, files, signed, signature)

    def _check_format(self, manifest: Mapping[str, Any]) -> None:
        version = manifest.get("format_version")
        if manifest.get("format") != FORMAT or type(version) is not int or version < 1:
            raise _refused(self._path, f"its {MANIFEST} is not that of an exported session")
        if version > FORMAT_VERSION:
            raise FormatUnsupportedError(
                f"{self._path} has format {version}, this version reads up to {FORMAT_VERSION}",
                hint="import it with the version that wrote it, or a newer one",
            )

    def _listed(self, manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        listed = manifest.get("files")
        if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
            raise _refused(self._path, f"its {MANIFEST} lists no files")
        for name in listed:
            if not _NAME.fullmatch(name):
                raise _refused(self._path, f"{name!r} is not a file of an exported session")
        return listed

    def _checked(self, name: str, expected: Mapping[str, Any], target: Path) -> Path:
        """Unpack a file piece by piece, and return where it is."""
        allowed, size, digest = min(self._limits.file_bytes, self._left), 0, hashlib.sha256()
        with self._archive.open(name) as source, target.open("xb") as file:
            for piece in _pieces(source):
                size += len(piece)
                if size > allowed:
                    raise _too_large(self._path, name, allowed)
                digest.update(piece)
                file.write(piece)
                self._step(len(piece))
        self._left -= size
        if {"sha256": digest.hexdigest(), "size": size} != {key: expected.get(key) for key in ("sha256", "size")}:
            raise _refused(self._path, f"{name} is not what the {MANIFEST} says; the file was changed or damaged")
        return target

    def _unpack(self, name: str, most: int) -> bytes:
        """Return a file's content, without ever holding more than is allowed."""
        allowed = min(most, self._left)
        with self._archive.open(name) as file:
            content = file.read(allowed + 1)
        if len(content) > allowed:
            raise _too_large(self._path, name, allowed)
        self._left -= len(content)
        return content


def parse_json(content: bytes, path: Path, name: str) -> Any:
    """Return the value of a JSON file inside of an archive.

    Raises:
        SessionImportError: it is not JSON.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"{name} is not JSON") from error


def _parse_object(content: bytes, path: Path, name: str) -> dict[str, Any]:
    value = parse_json(content, path, name)
    if not isinstance(value, dict):
        raise _refused(path, f"{name} is not a JSON object")
    return value


def _too_large(path: Path, what: str, allowed: int) -> SessionImportError:
    return SessionImportError(
        f"{path} is not imported: {what} is larger than the {allowed:,} bytes that are left for it",
        hint="raise the limits of the import if you trust the file",
    )


def _refused(path: Path, reason: str) -> SessionImportError:
    return SessionImportError(f"{path} is not imported: {reason}", hint="export the session again")


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _BEGINNING_OF_TIME)
    info.compress_type, info.external_attr, info.create_system = zipfile.ZIP_DEFLATED, _PLAIN_FILE, 3
    info.file_size = size  # from which it follows how its header is written
    return info


def _measured(file: Path) -> dict[str, Any]:
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256")
        return {"sha256": digest.hexdigest(), "size": source.tell()}


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: source.read(_PIECE), b"")
