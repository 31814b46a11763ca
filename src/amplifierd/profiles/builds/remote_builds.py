"""The place that `builds.url` names, where builds lie for other machines: each an archive, and what is said about it.

    <collection>/<profile>/<build_id>.json                    what the archive has to be, and the lock of the build
    <collection>/<profile>/<build_id>-<sha256>.tar.gz         the archive

What is said about an archive is written last. Two machines that publish one build at the same time do not disturb each
other: their archives have different names, unless they are the same.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from amplifier_foundation.exceptions import RefResolutionError, RefResolutionReason
from amplifier_foundation.sources.downloads.archive import member_path
from amplifier_foundation.sources.remote_directory import RemoteDirectory
from amplifier_foundation.sources.resolved import is_bytecode
from amplifier_foundation.sources.store import make_directory
from amplifier_system.threads import Stop, in_thread
from amplifierd.identifiers import ProfileId
from amplifierd.stored_json import StoredFormat, json_text

from .build import Build
from .build_parts import find_damaged
from .lock import LockUnusableError, ProfileLock, parse_lock, read_lock
from .publication import sealed_mode

_FORMAT = StoredFormat()


@dataclass(frozen=True)
class PublishedBuild:
    """What is said about a build at the place where it lies."""

    profile_id: ProfileId
    build_id: str
    measured: Measured
    lock: ProfileLock

    @property
    def archive_name(self) -> str:
        return f"{_name(self.profile_id, self.build_id)}-{self.measured.sha256}.tar.gz"

    def to_dict(self) -> dict[str, Any]:
        return {
            "profile": str(self.profile_id),
            "build_id": self.build_id,
            "sha256": self.measured.sha256,
            "size": self.measured.size,
            "lock": self.lock.data,
        }


class RemoteBuilds:
    """The builds at one address; `most_bytes` is the size of the largest that is fetched."""

    def __init__(self, place: RemoteDirectory, most_bytes: int) -> None:
        self._place, self._most_bytes = place, most_bytes

    def __str__(self) -> str:
        return str(self._place)

    @property
    def is_read_only(self) -> bool:
        return self._place.is_read_only

    async def find(self, profile_id: ProfileId, build_id: str) -> PublishedBuild | None:
        """Return what is said about a build, None when nothing is.

        Raises:
            RefResolutionError: the place cannot be read, or what it says cannot be understood.
            FormatUnsupportedError: a newer version wrote it.
        """
        name = f"{_name(profile_id, build_id)}.json"
        try:
            content = await self._place.read(name)
        except RefResolutionError as error:
            if error.reason == "not-found":
                return None
            raise
        where = f"{self._place}/{name}"
        try:
            said = _FORMAT.parse(content, where)
            measured = Measured(str(said["sha256"]), int(said["size"]))
            lock = parse_lock(said["lock"], where)
            found = PublishedBuild(ProfileId.parse(said["profile"]), str(said["build_id"]), measured, lock)
        except (ValueError, KeyError, TypeError, LockUnusableError) as error:
            raise RefResolutionError(f"{where} cannot be understood: {error}", where, "integrity") from error
        if (found.profile_id, found.build_id, lock.build_id) != (profile_id, build_id, build_id):
            text = f"{where} is about build {lock.build_id} of profile {found.profile_id}"
            raise RefResolutionError(text, where, "integrity")
        return found

    async def add(self, build: Build) -> PublishedBuild:
        """Put a build there, whatever was there before.

        Raises:
            RefResolutionError: it cannot be written.
        """
        with build.hold() as directory:
            measured = await in_thread(lambda stop: measure(directory, stop))
            published = PublishedBuild(build.profile_id, build.build_id, measured, build.lock)
            await self._place.write(published.archive_name, lambda file, stop: pack(directory, file, stop))
        said = json_text(_FORMAT.stamped(published.to_dict()))
        name = f"{_name(build.profile_id, build.build_id)}.json"
        await self._place.write(name, lambda file, stop: _write(file, said))
        return published

    async def fetch(self, published: PublishedBuild, work: Path) -> Path:
        """Put a build into a new directory below `work`, checked from its archive to its last file, and return it.

        Raises:
            RefResolutionError: it cannot be fetched, or is not what it should be.
        """
        archive, target = work / "archive", work / "build"
        where = f"{self._place}/{published.archive_name}"
        if published.measured.size > self._most_bytes:
            text = f"{where} is larger than {self._most_bytes:,} bytes"
            raise RefResolutionError(text, where, "too-large", hint="raise the setting builds.max_bytes")
        await self._place.fetch(published.archive_name, archive)
        await in_thread(lambda stop: unpack(archive, target, published.measured, ref=where, stop=stop))
        await in_thread(lambda stop: _check(target, published, where))
        return target


def _name(profile_id: ProfileId, build_id: str) -> str:
    return f"{profile_id.collection}/{profile_id.name}/{build_id}"


def _write(file: Any, content: bytes) -> None:
    file.write(content)


def _check(directory: Path, published: PublishedBuild, where: str) -> None:
    """Compare what was unpacked with what it should be: an archive may have been put under the name of another."""
    try:
        lock = read_lock(directory)
    except LockUnusableError as error:
        raise RefResolutionError(f"{where} is not a build: {error}", where, "integrity") from error
    if lock.data != published.lock.data:
        text = f"{where} has build {lock.build_id} in it"
        raise RefResolutionError(text, where, "integrity")
    if damaged := find_damaged(directory, lock):
        text = f"{where} is not what its lock says: {', '.join(damaged)}"
        raise RefResolutionError(text, where, "integrity")


# A build as one archive: the same bytes wherever it is packed, and unpacked so that nothing lands outside.
#
# It is a tar file of regular files, sorted, without times and owners, compressed with gzip. Its hash is that of the
# tar file: what compresses it on another machine may do so in another way. Only what is packed here is unpacked:
# other kinds of members (links, devices, files with holes) and long heads could take more than the archive itself.


_CHUNK = 1024 * 1024
_BLOCK = tarfile.BLOCKSIZE
_LONGEST_HEAD = 64 * 1024
_LONGEST_SHOWN = 200
_PAX_KEYS = (b"path", b"size", b"hdrcharset")
_LEVEL = 6
_MOST_ENTRIES = 200_000
_TIME = 315532800  # 1980-01-01: some tools know no earlier one
_FAULTS = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError)


@dataclass(frozen=True)
class Measured:
    """What an archive has to be, before it is compressed."""

    sha256: str
    size: int


def measure(directory: Path, stop: Stop) -> Measured:
    """Return the hash and the size of the archive of a build.

    Raises:
        RefResolutionError: the build has something in it that is neither a file nor a directory.
    """
    sink = _Digest()
    _pack(directory, sink, stop)
    return Measured(sink.digest.hexdigest(), sink.size)


def pack(directory: Path, file: IO[bytes], stop: Stop) -> None:
    """Write the archive of a build into a file.

    Raises:
        RefResolutionError: the build has something in it that is neither a file nor a directory.
    """
    with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as compressed:
        _pack(directory, compressed, stop)


def unpack(archive: Path, target: Path, expected: Measured, *, ref: str, stop: Stop) -> None:
    """Unpack an archive into the new directory `target`, which the caller removes if this raises.

    Raises:
        RefResolutionError: it is not the archive that is expected, or names something outside of it.
    """
    try:
        with gzip.open(archive) as compressed:
            source = _Digest(compressed, most=expected.size)
            target.mkdir(mode=0o700)
            for count, member in enumerate(_members(source), 1):
                stop.check()
                if count > _MOST_ENTRIES:
                    raise _failure(ref, f"it has more than {_MOST_ENTRIES:,} entries", "too-large")
                _unpack(source, member, target, ref)
            while source.read(_CHUNK):
                stop.check()
    except _FAULTS as error:
        raise _failure(ref, f"it is damaged: {error}", "integrity") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _failure(ref, f"it names {Path(error.filename).name!r} twice", "integrity") from error
    if Measured(source.digest.hexdigest(), source.size) != expected:
        raise _failure(ref, "it is damaged: its hash is different", "integrity")


def _pack(directory: Path, file: Any, stop: Stop) -> None:
    with tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in _entries(directory):
            stop.check()
            member = tarfile.TarInfo(name)
            member.mtime = _TIME
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                member.type, member.mode = tarfile.DIRTYPE, 0o700
                archive.addfile(member)
                continue
            if not stat.S_ISREG(status.st_mode):
                raise _failure(str(directory), f"{name!r} is neither a file nor a directory", "unsafe-path")
            member.size, member.mode = status.st_size, sealed_mode(status.st_mode)
            with path.open("rb") as content:
                archive.addfile(member, content)


def _entries(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield every file of a build by its name, sorted, and the directories that are empty."""
    found: dict[str, Path] = {}
    for parent, directories, files in os.walk(directory):
        is_empty = not directories and not files
        for path in (Path(parent, name) for name in files):
            found[path.relative_to(directory).as_posix()] = path
        links = [name for name in directories if Path(parent, name).is_symlink()]
        found |= {Path(parent, name).relative_to(directory).as_posix(): Path(parent, name) for name in links}
        if is_empty:
            found[Path(parent).relative_to(directory).as_posix()] = Path(parent)
    return ((name, found[name]) for name in sorted(found) if not is_bytecode(name))


def _members(source: _Digest) -> Iterator[tarfile.TarInfo]:
    """Yield the head of every member; whoever takes one reads what follows it from `source`."""
    said: dict[bytes, bytes] = {}
    while any(head := source.take(_BLOCK)):
        member = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
        if member.type == tarfile.XHDTYPE:
            if said or not 0 < member.size <= _LONGEST_HEAD:
                raise tarfile.ReadError("a member has more than one head, or a long one")
            said = _pax_records(source.take(_padded(member.size))[: member.size])
            continue
        member.name = os.fsdecode(said.get(b"path", os.fsencode(member.name)))
        member.size = int(said.get(b"size", member.size))
        if member.size < 0:
            raise tarfile.ReadError("a member has less than nothing in it")
        said = {}
        yield member


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """Return what stands before the head of a member whose name or size has no room in it."""
    records: dict[bytes, bytes] = {}
    while data:
        length = data.partition(b" ")[0]
        record = data[: int(length) if length.isdigit() else 0]
        key, is_record, value = record[len(length) + 1 :].partition(b"=")
        if not is_record or not value.endswith(b"\n") or key not in _PAX_KEYS:
            raise tarfile.ReadError("a member has a head that no build has")
        records[key] = value[:-1]
        data = data[len(record) :]
    return records


def _unpack(source: _Digest, member: tarfile.TarInfo, target: Path, ref: str) -> None:
    name = member_path(member.name)
    if name is None:
        raise _failure(ref, f"{member.name[:_LONGEST_SHOWN]!r} is not inside it", "unsafe-path")
    if is_bytecode(str(name)):
        raise _failure(ref, f"{member.name!r} is bytecode, which no hash of a build covers", "unsafe-path")
    destination = target / name
    if member.type == tarfile.DIRTYPE:
        make_directory(destination)
        return
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise _failure(ref, f"{member.name!r} is neither a file nor a directory", "unsafe-path")
    make_directory(destination.parent)
    left = member.size
    with destination.open("xb") as file:
        while left:
            left -= file.write(source.take(min(left, _CHUNK)))
    source.take(_padded(member.size) - member.size)
    destination.chmod(sealed_mode(member.mode))


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _failure(ref: str, problem: str, reason: RefResolutionReason) -> RefResolutionError:
    return RefResolutionError(f"the archive {ref} cannot be used: {problem}", ref, reason)


class _Digest(io.RawIOBase):
    """Counts and hashes what is written into it, or what is read from `source`, of which there is `most`."""

    def __init__(self, source: Any = None, *, most: int = 0) -> None:
        self._source, self._most = source, most
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._source.read(size)
        self.write(data)
        if self.size > self._most:
            raise tarfile.ReadError("it is larger than it should be")
        return data

    def take(self, size: int) -> bytes:
        """Return exactly so much of the source."""
        data = self.read(size)
        if len(data) < size:
            raise EOFError("it ends too early")
        return data

    def tell(self) -> int:
        return self.size
