"""The place that `builds.url` names, where builds lie for other machines: each an archive, and what is said about it.

    <collection>/<profile>/<build_id>.json                    what the archive has to be, and the lock of the build
    <collection>/<profile>/<build_id>-<sha256>.tar.gz         the archive

What is said about an archive is written last. Two machines that publish one build at the same time do not disturb each
other: their archives have different names, unless they are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources.remote_directory import RemoteDirectory
from amplifier_system.threads import in_thread
from amplifierd.identifiers import ProfileId
from amplifierd.stored_json import StoredFormat, json_text

from .build import Build
from .build_archive import Measured, measure, pack, unpack
from .build_parts import find_damaged
from .lock import LockUnusableError, ProfileLock, parse_lock, read_lock

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


class BuildDepot:
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
            told = f"{where} is about build {lock.build_id} of profile {found.profile_id}"
            raise RefResolutionError(told, where, "integrity")
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
            told = f"{where} is larger than {self._most_bytes:,} bytes"
            raise RefResolutionError(told, where, "too-large", hint="raise the setting builds.max_bytes")
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
        told = f"{where} has build {lock.build_id} in it"
        raise RefResolutionError(told, where, "integrity")
    if damaged := find_damaged(directory, lock):
        told = f"{where} is not what its lock says: {', '.join(damaged)}"
        raise RefResolutionError(told, where, "integrity")
