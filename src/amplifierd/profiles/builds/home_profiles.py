"""The profiles of a home, and making builds of them: compiled, verified, removed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.sources import Progress, ProgressEvent, Sources
from amplifier_foundation.sources.resolved import Phase, report
from amplifier_foundation.sources.store import locked
from amplifier_system.threads import in_thread
from amplifierd.exceptions import ProfileCompilationError, ProfileNotFoundError, ProfileValidationError
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.documents.inheritance import MergedProfile
from amplifierd.profiles.documents.literal_secrets import KeepSecret
from amplifierd.settings import Settings

from . import publication
from .build import Build
from .build_parts import find_changes
from .fingerprints import Fingerprints
from .fresh_build import FreshBuild, fresh_build, now_ns
from .lock import ProfileLock
from .profile_catalogue import ProfileCatalogue, Roots
from .profile_reading import ProfileReading, extract_with_ancestors
from .resources import ResourceLocator, collections_of, with_installed
from .sharing import UNAVAILABLE, BuildSharing, CompileContext
from .staleness import RESTORABLE, Inspection, ProfileStatus, Reason, StatusWord, inspect

if TYPE_CHECKING:
    from .remote_builds import PublishedBuild

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT_S = 1800.0
_TRIES = 5


class Profiles(ProfileReading):
    """The profiles of one home."""

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        catalogue: ProfileCatalogue,
        sources: Sources,
        *,
        in_use: Callable[[ProfileId], bool],
        keep: KeepSecret,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(paths, catalogue, keep)
        self._settings, self._progress = settings, progress
        self._locator = ResourceLocator(
            sources, settings.security, is_remote=catalogue.is_remote, is_near=catalogue.is_near
        )
        self._context = CompileContext(paths, self._locator, settings.compile, settings.offline, in_use, keep)
        self._sharing = BuildSharing(self._context, settings, progress)
        self._seen: dict[ProfileId, FreshBuild | None] = {}

    async def ensure(self, profile_id: ProfileId | str) -> Build:
        """Return a build to use: the published one if it is fresh, or `startup.auto_compile` is off, else a new one.

        Raises what `compile` raises; without compiling `ProfileNotFoundError` when there is no build.
        """
        if self._settings.startup.auto_compile:
            return await self.compile(profile_id)
        build = await asyncio.to_thread(self.find_build, profile_id)
        if build is None:
            raise ProfileNotFoundError(f"Profile {profile_id} is not compiled", hint="compile it")
        return await self._checked(build)

    async def open_build(self, profile_id: ProfileId | str, build_id: str) -> Build | None:
        """Return the build of an id as it was made, `None` when it is not there.

        Raises:
            ProfileCompilationError: it was changed, and is not restored by compiling the profile (`build-damaged`).
        """
        build = await asyncio.to_thread(self.find_build, profile_id, build_id)
        if build is None:
            return None
        try:
            return await self._checked(build)
        except ProfileCompilationError:
            restored = await self.ensure(profile_id)
            if restored.build_id != build_id:
                raise
            return restored

    async def _checked(self, build: Build) -> Build:
        changed = await asyncio.to_thread(find_changes, self._paths, build.profile_id, build.path, build.lock)
        if changed:
            raise build.damaged(f"is not what was made: {', '.join(changed)} changed")
        return build

    def _merged(self, profile_id: ProfileId) -> MergedProfile:
        return with_installed(super()._merged(profile_id), self._settings.sources.replace)

    @property
    def is_supplied(self) -> bool:
        """True if builds come from other machines; then a session runs the build that it began with, or not at all."""
        return self._sharing.is_open

    async def obtain(self, profile_id: ProfileId | str, build_id: str) -> Build:
        """Return the build of an id: as it is here, else from where `builds.url` says, else made from its lock.

        Raises:
            ProfileCompilationError: it cannot be had (`build-unavailable`); the message says what was tried.
        """
        known, tried, lock = ProfileId.parse(profile_id), list[str](), None
        try:
            async with self._locked(known):
                if (build := await asyncio.to_thread(self.find_build, known, build_id)) is not None:
                    return await self._checked(build)
                await in_thread(lambda stop: publication.sweep(self._paths, known))
                if (published := await self._sharing.find(known, build_id)) is not None:
                    lock = published.lock
                    return await self._sharing.fetch(published)
                tried.append(f"{self._sharing.remote} does not have it")
        except (AmplifierError, OSError) as error:
            tried.append(_told(error))
        try:
            build = await (self.ensure(known) if lock is None else self._remake(known, lock))
            if build.build_id == build_id:
                return build
            tried.append(f"what the profile says here makes build {build.build_id}")
        except AmplifierError as error:
            tried.append(_told(error))
        raise _unavailable(known, build_id, tried)

    async def publish(
        self, profile_id: ProfileId | str, build_id: str | None = None, *, force: bool = False
    ) -> PublishedBuild:
        """Put the build of an id, by default the profile's published one, where `builds.url` says, for other machines.

        One that is there already stays; `force` puts it there again.

        Raises:
            ProfileNotFoundError: there is no such build here.
            ProfileCompilationError: `builds.url` is not set.
            RefResolutionError: the place cannot be read or written.
        """
        known = ProfileId.parse(profile_id)
        build = await asyncio.to_thread(self.find_build, known, build_id)
        if build is None:
            named = f"build {build_id}" if build_id else "a build"
            raise ProfileNotFoundError(f"Profile {known} has no such build here: {named}", hint="compile it")
        return await self._sharing.publish(build, force=force)

    async def ensure_extracted(self, profile_id: ProfileId | str) -> None:
        """See to it that the texts of a profile and of its ancestors are in the home.

        Raises:
            RefResolutionError: the profile's collection cannot be obtained; an ancestor's that cannot is skipped.
        """
        await extract_with_ancestors(self._catalogue, self._texts, ProfileId.parse(profile_id))

    async def compile(
        self, profile_id: ProfileId | str, *, force: bool = False, frozen: bool = False, refresh: bool = False
    ) -> Build:
        """Return a build of what the profile says now; made only if the published one is not that already.

        `force` resolves everything again. `refresh` asks remotes what moved, and fetches that. `frozen` refuses to
        resolve anything that is not locked.

        Raises:
            ProfileNotFoundError: there is no such profile.
            ProfileValidationError: it breaks rules; with all issues.
            ProfileCompilationError: it cannot be made, or not without resolving (`frozen`); the build before is as it
                was.
            FormatUnsupportedError: a newer version wrote the lock; nothing was changed.
        """
        known = ProfileId.parse(profile_id)
        try:
            async with asyncio.timeout(self._settings.compile.timeout_seconds):
                build = await self._compile(known, force=force, frozen=frozen, refresh=refresh)
        except TimeoutError as error:
            seconds = self._settings.compile.timeout_seconds
            raise ProfileCompilationError(
                f"Profile {known} was not built within {seconds:g} s", code="timeout"
            ) from error
        except OSError as error:
            raise ProfileCompilationError(f"Profile {known} cannot be built: {error}", code="not-writable") from error
        await self._sharing.offer(build)
        return build

    async def status(self, profile_id: ProfileId | str) -> ProfileStatus:
        """Say how a profile stands; the network is not used.

        Raises:
            ProfileNotFoundError: there is no such profile.
            FormatUnsupportedError: a newer version wrote its lock.
        """
        return await self._status(ProfileId.parse(profile_id), verify=False)

    async def verify(self, profile_id: ProfileId | str) -> ProfileStatus:
        """Say how a profile stands, every file of its build and of its local sources read and hashed.

        What is found damaged is restored by the next compile.

        Raises:
            ProfileNotFoundError: there is no such profile.
            FormatUnsupportedError: a newer version wrote its lock.
        """
        return await self._status(ProfileId.parse(profile_id), verify=True)

    async def remove_old_builds(
        self, profile_id: ProfileId | str | None = None, *, keep: Collection[str] = ()
    ) -> tuple[Path, ...]:
        """Remove the builds that are neither published nor held, for one profile or for all.

        `keep` has the ids of builds that stay all the same.
        """
        wanted = self._built() if profile_id is None else [ProfileId.parse(profile_id)]
        removed: list[Path] = []
        for each in wanted:
            async with self._locked(each):
                removed += await asyncio.to_thread(publication.remove_old_builds, self._paths, each, keep=keep)
        return tuple(removed)

    async def _compile(self, profile_id: ProfileId, *, force: bool, frozen: bool, refresh: bool) -> Build:
        """Look first, without a lock: most of the time there is nothing to do."""
        if not (force or frozen or refresh) and (known := await self._find_seen(profile_id)):
            return known
        began_ns = now_ns()
        if not frozen:
            await self.ensure_extracted(profile_id)
        merged, fingerprints = await asyncio.to_thread(self._load, profile_id)
        near = await self._find_roots(merged)
        inspection = await inspect(self._paths, self._locator, merged, near, fingerprints)
        if frozen:
            unseen = await asyncio.to_thread(self._find_unseen, merged)
            _check_frozen(profile_id, (*unseen, *inspection.reasons), force=force or refresh)
        if not force and not refresh and (build := _fresh(profile_id, inspection)):
            await fingerprints.save_if_changed()
            self._seen[profile_id] = await asyncio.to_thread(
                fresh_build, self._paths, self._catalogue, merged, near, inspection, build, began_ns
            )
            return build
        roots = await self._roots(merged)
        for _ in range(_TRIES):
            async with self._locked(profile_id):
                await in_thread(lambda stop: publication.sweep(self._paths, profile_id))
                merged = await asyncio.to_thread(self._valid, profile_id)
                if collections_of(merged) <= roots.keys():
                    return await self._compile_locked(merged, roots, force=force, frozen=frozen, refresh=refresh)
            # The profile changed meanwhile. Its collections must be ready before its lock is taken.
            roots = await self._roots(await asyncio.to_thread(self._valid, profile_id))
        raise ProfileCompilationError(f"Profile {profile_id} keeps changing while it is compiled", code="unsettled")

    async def _find_seen(self, profile_id: ProfileId) -> Build | None:
        """Return the build that the last look found to be fresh, if nothing was touched since."""
        if (seen := self._seen.get(profile_id)) is None:
            return None
        for each in seen.chain:
            with contextlib.suppress(AmplifierError):  # a thorough look says what is wrong
                await self._catalogue.ensure_profile(each)
        return seen.build if await asyncio.to_thread(seen.holds) else None

    async def _compile_locked(
        self, merged: MergedProfile, roots: Roots, *, force: bool, frozen: bool, refresh: bool
    ) -> Build:
        profile_id = merged.profile_id
        fingerprints = await asyncio.to_thread(Fingerprints, self._paths, profile_id)
        inspection = await inspect(
            self._paths, self._locator, merged, roots, fingerprints, refresh=refresh and not force
        )
        if not force and (build := _fresh(profile_id, inspection)):
            await fingerprints.save_if_changed()
            return build
        if frozen:
            _check_frozen(profile_id, inspection.reasons, force=False)
        if not force and not refresh and (build := await self._restore(profile_id, inspection)) is not None:
            return build
        self._tell(profile_id, "fetching", ", ".join("forced" if force else str(each) for each in inspection.reasons))
        from .compilation import Compilation  # most of the time nothing has changed

        compilation = Compilation(
            self._context,
            merged,
            roots,
            inspection,
            fingerprints,
            force=force,
            frozen=frozen,
            on_install=lambda modules: report(self._progress, ProgressEvent("packages", modules, "fetching")),
        )
        try:
            build = await compilation.run()
        except Exception as error:
            self._tell(profile_id, "failed", str(error))
            raise
        self._tell(profile_id, "ready")
        return build

    async def _restore(self, profile_id: ProfileId, inspection: Inspection) -> Build | None:
        """Fetch a build of which something is missing or changed here; None when it is to be made again."""
        lock = inspection.lock
        if not self._sharing.is_open or lock is None or not {*inspection.codes} <= RESTORABLE:
            return None
        try:
            published = await self._sharing.find(profile_id, lock.build_id)
            build = None if published is None else await self._sharing.fetch(published, replace=True)
        except AmplifierError as error:
            logger.info("build %s of profile %s is made again: %s", lock.build_id, profile_id, error.message)
            return None
        if build is not None and not self._context.in_use(profile_id):
            await asyncio.to_thread(publication.remove_old_builds, self._paths, profile_id)
        return build

    async def _remake(self, profile_id: ProfileId, lock: ProfileLock) -> Build:
        from .compilation import remake  # few builds have to be made twice

        await self.ensure_extracted(profile_id)
        merged, fingerprints = await asyncio.to_thread(self._load, profile_id)
        roots = await self._roots(merged)
        async with self._locked(profile_id):
            build = await asyncio.to_thread(self.find_build, profile_id, lock.build_id)
            return build or await remake(self._context, merged, roots, lock, fingerprints)

    async def _status(self, profile_id: ProfileId, *, verify: bool) -> ProfileStatus:
        if self._catalogue.is_orphaned(profile_id):
            return ProfileStatus(profile_id, "orphaned")
        await self.ensure_extracted(profile_id)
        try:
            merged = await asyncio.to_thread(self._merged, profile_id)
        except ProfileValidationError as error:
            return ProfileStatus(profile_id, "invalid", issues=error.issues)
        if not merged.is_valid:
            return ProfileStatus(profile_id, "invalid", issues=merged.issues)
        fingerprints = await asyncio.to_thread(Fingerprints, self._paths, profile_id)
        try:
            inspection = await inspect(
                self._paths, self._locator, merged, await self._find_roots(merged), fingerprints, verify=verify
            )
        except ProfileCompilationError as error:
            issue = Issue(error.code, error.message, file=merged.document.path, fix=error.hint)
            return ProfileStatus(profile_id, "invalid", issues=(*merged.issues, issue))
        await fingerprints.save_if_changed()
        lock = inspection.lock
        word: StatusWord = "stale" if inspection.reasons else "degraded" if lock and lock.degraded else "fresh"
        if inspection.codes == ("lock-missing",):
            word = "missing"
        warnings = (*(lock.warnings if lock else ()), *inspection.warnings)
        build_id = lock.build_id or None if lock else None
        return ProfileStatus(profile_id, word, inspection.reasons, build_id, warnings, merged.issues)

    def _find_unseen(self, merged: MergedProfile) -> Sequence[Reason]:
        """Return what the user changed about a profile and its ancestors that has not been extracted yet."""
        unseen = self._catalogue.find_unseen()
        own = [Reason("profile-changed")] if merged.profile_id in unseen else []
        above = [each.profile_id for each in merged.ancestors if each.profile_id in unseen]
        return [*own, *(Reason("parent-changed", str(each)) for each in above)]

    def _load(self, profile_id: ProfileId) -> tuple[MergedProfile, Fingerprints]:
        return self._valid(profile_id), Fingerprints(self._paths, profile_id)

    async def _roots(self, merged: MergedProfile) -> Roots:
        """Return the files of the collections that a profile refers to; what left the cache is fetched."""
        return {name: await self._catalogue.root(name) for name in sorted(collections_of(merged))}

    async def _find_roots(self, merged: MergedProfile) -> Roots:
        """Return the same as far as it can be obtained: a build that is there does not need it."""
        found = {}
        for name in sorted(collections_of(merged)):
            with contextlib.suppress(AmplifierError):
                found[name] = await self._catalogue.root(name)
        return found

    def _built(self) -> Sequence[ProfileId]:
        found = self._paths.profiles.glob(f"*/{publication.BUILDS_DIR}/*")
        return sorted(ProfileId(path.parents[1].name, path.name) for path in found)

    def _locked(self, profile_id: ProfileId) -> AbstractAsyncContextManager[None]:
        return locked(
            publication.lock_path(self._paths, profile_id),
            ref=f"profile {profile_id}",
            timeout_s=_LOCK_TIMEOUT_S,
            on_wait=lambda: self._tell(profile_id, "waiting"),
        )

    def _tell(self, profile_id: ProfileId, phase: Phase, detail: str = "") -> None:
        report(self._progress, ProgressEvent("profile", str(profile_id), phase, detail=detail))


def _fresh(profile_id: ProfileId, inspection: Inspection) -> Build | None:
    if inspection.reasons or inspection.lock is None or inspection.directory is None:
        return None
    return Build.of(profile_id, inspection.directory, inspection.lock)


def _told(error: AmplifierError | OSError) -> str:
    return error.message if isinstance(error, AmplifierError) else str(error)


def _unavailable(profile_id: ProfileId, build_id: str, tried: Sequence[str]) -> ProfileCompilationError:
    text = "".join(f"\n  {line}" for line in tried)
    return ProfileCompilationError(
        f"Build {build_id} of profile {profile_id} is not available on this machine:{text}",
        code=UNAVAILABLE,
        problems=tried,
        hint=f"publish it from a machine that has it: amplifier profile publish {profile_id} --build {build_id}; "
        f"or continue with the newest build: amplifier run --resume SESSION --profile {profile_id}",
    )


def _check_frozen(profile_id: ProfileId, found: Sequence[Reason], *, force: bool) -> None:
    """Refuse what would need something new."""
    reasons = [Reason("forced")] if force else [each for each in found if each.code not in RESTORABLE]
    if reasons:
        text = ", ".join(dict.fromkeys(each.code for each in reasons))
        raise ProfileCompilationError(
            f"Profile {profile_id} is frozen and its build is stale: {text}",
            code="frozen",
            problems=[str(each) for each in reasons],
            hint="compile it without frozen",
        )
