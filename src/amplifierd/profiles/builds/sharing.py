"""How the builds of a home come from, and go to, the place that `builds.url` names."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Progress, ProgressEvent
from amplifier_foundation.sources.resolved import report
from amplifier_foundation.sources.store import make_directory, remove
from amplifier_system.tasks import run_to_end
from amplifier_system.threads import in_thread
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths
from amplifierd.profiles.documents.literal_secrets import KeepSecret, find_literal_secrets
from amplifierd.settings import CompileSettings, Settings

from . import publication
from .build import Build
from .lock import ProfileLock, platform_name, python_version
from .resources import ResourceLocator

if TYPE_CHECKING:
    from .remote_builds import PublishedBuild, RemoteBuilds

logger = logging.getLogger(__name__)

UNAVAILABLE = "build-unavailable"
"""The code of a build that this machine lacks, and cannot get."""


class BuildSharing:
    """The builds that come to a home and leave it; without `builds.url` none does."""

    def __init__(self, context: CompileContext, settings: Settings, progress: Progress | None) -> None:
        self._context, self._progress = context, progress
        self._url, most_bytes = settings.builds.url, settings.builds.max_bytes
        self._remote: RemoteBuilds | None = None
        if self._url is not None:
            from amplifier_foundation.sources.remote_directory import RemoteDirectory  # most homes name no place

            from .remote_builds import RemoteBuilds

            place = RemoteDirectory(self._url, offline=settings.offline, most_bytes=most_bytes)
            self._remote = RemoteBuilds(place, most_bytes)
        self._offered: set[str] = set()

    @property
    def is_open(self) -> bool:
        """True if builds come from elsewhere at all."""
        return self._remote is not None

    @property
    def remote(self) -> RemoteBuilds:
        """The place.

        Raises:
            ProfileCompilationError: the settings name none.
        """
        if self._remote is None:
            raise ProfileCompilationError(
                "no place to publish builds is set",
                code=UNAVAILABLE,
                hint="name one with the setting builds.url, for example s3://bucket/builds or file:///mnt/builds",
            )
        return self._remote

    async def offer(self, build: Build) -> None:
        """Publish a build if it is not known to lie there, once in this process; a failure is logged."""
        if self._remote is None or self._remote.is_read_only or build.build_id in self._offered:
            return
        self._offered.add(build.build_id)
        try:
            if not await asyncio.to_thread(self._marker(build).exists):
                await self.publish(build)
        except (RefResolutionError, OSError) as error:
            logger.warning("build %s of profile %s is not published: %s", build.build_id, build.profile_id, error)

    async def publish(self, build: Build, *, force: bool = False) -> PublishedBuild:
        """Publish a build unless it lies there already; `force` does so in any case.

        Raises:
            RefResolutionError: the place cannot be read or written.
        """
        known = None if force else await self._find_usable(build)
        if known is None:
            self._tell(build.profile_id, f"publishing build {build.build_id[:12]}")
            if kept := await asyncio.to_thread(lambda: find_literal_secrets(build.plan())):
                text = "profile %s has secrets that only this home knows: %s; write ${VARIABLE} in their place"
                logger.warning(text, build.profile_id, ", ".join(kept))
            known = await self.remote.add(build)
            logger.info("build %s of profile %s is published at %s", build.build_id, build.profile_id, self._remote)
        await asyncio.to_thread(self._mark, build)
        return known

    async def _find_usable(self, build: Build) -> PublishedBuild | None:
        try:
            return await self.remote.find(build.profile_id, build.build_id)
        except RefResolutionError as error:
            if error.reason != "integrity":
                raise
            return None

    async def find(self, profile_id: ProfileId, build_id: str) -> PublishedBuild | None:
        """Return what is said about a build at the place, None when it is not there.

        Raises:
            RefResolutionError: the place cannot be read.
            ProfileCompilationError: it was made from sources that the settings do not allow.
        """
        published = await self.remote.find(profile_id, build_id)
        if published is not None:
            self._context.locator.check_locked(published.lock)
        return published

    async def fetch(self, published: PublishedBuild, *, replace: bool = False) -> Build:
        """Fetch a build and put it among those of its profile, whose lock the caller holds.

        `replace` makes it the one that the profile means.

        Raises:
            RefResolutionError: it cannot be fetched, or is not what it should be; nothing was changed.
            ProfileCompilationError: it was made for another kind of machine.
        """
        profile_id, paths = published.profile_id, self._context.paths
        _check_machine(published.lock)
        self._tell(profile_id, f"fetching build {published.build_id[:12]} from {self._remote}")
        work = await in_thread(lambda stop: publication.make_staging(paths, profile_id))
        put = publication.publish if replace else publication.place
        try:
            directory = await self.remote.fetch(published, work)
            placed = await in_thread(lambda stop: put(paths, profile_id, directory, published.build_id))
        finally:
            await run_to_end(asyncio.to_thread(remove, work))
        logger.info("build %s of profile %s was fetched from %s", published.build_id, profile_id, self._remote)
        build = Build.of(profile_id, placed, published.lock)
        await asyncio.to_thread(self._mark, build)
        return build

    def _tell(self, profile_id: ProfileId, detail: str) -> None:
        report(self._progress, ProgressEvent("profile", str(profile_id), "fetching", detail=detail))

    def _marker(self, build: Build) -> Path:
        """Return the file whose existence says that a build lies at the place."""
        place, profile_id = hashlib.sha256(str(self._url).encode()).hexdigest()[:16], build.profile_id
        marked = self._context.paths.cache / "published" / place
        return marked / profile_id.collection / profile_id.name / build.build_id

    def _mark(self, build: Build) -> None:
        marker = self._marker(build)
        make_directory(marker.parent)
        marker.touch()


def _check_machine(lock: ProfileLock) -> None:
    """Refuse packages that were installed for another kind of machine."""
    made_for, here = (lock.data["python"], lock.data["platform"]), (python_version(), platform_name())
    if lock.dependencies is not None and made_for != here:
        raise ProfileCompilationError(
            f"build {lock.build_id} has packages for Python {made_for[0]} on {made_for[1]}, "
            f"and this is Python {here[0]} on {here[1]}",
            code=UNAVAILABLE,
            hint="run the session on a machine of that kind, or switch it to the newest build of its profile",
        )


@dataclass(frozen=True)
class CompileContext:
    """What every compile of a home works with; `in_use` says whether a profile is in use, `keep` stores a secret."""

    paths: Paths
    locator: ResourceLocator
    settings: CompileSettings
    offline: bool
    in_use: Callable[[ProfileId], bool]
    keep: KeepSecret
