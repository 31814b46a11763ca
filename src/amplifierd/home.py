"""A home: its paths and settings, read once, and what can be done with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.modules.installer import remove_scratch_leftovers
from amplifier_foundation.sources import Limits, Progress, Sources
from amplifier_foundation.sources.pruning import remove_leftovers as remove_cache_leftovers
from amplifier_system.files import remove_unfinished
from amplifierd.profiles.collections.catalogue import Catalogue
from amplifierd.profiles.collections.registry_file import find_shipped_collection

from .exceptions import SnapshotRefusedError, StoreUnavailableError
from .identifiers import ProfileId
from .paths import Paths
from .settings import Settings, load_settings
from .trust import Trust

if TYPE_CHECKING:
    from amplifier_foundation.registry import BundleRegistry
    from amplifierd.profiles.builds.home_profiles import Profiles
    from amplifierd.profiles.builds.module_resolver import DaemonModuleSourceResolver
    from amplifierd.profiles.collections.home_collections import Collections

    from .checkpoints import Checkpoints
    from .keys import Keys
    from .plans.composition import Composer
    from .plans.home_plans import Plans
    from .sessions.home_sessions import Sessions
    from .sessions.runtime import Runtime
    from .source_cache import SourceCache


@dataclass(frozen=True)
class Home:
    """Everything below one `AMPLIFIERD_HOME`; frozen. Several homes can be open in one process.

    `shipped_collection` is the directory of the collection `foundation`, None where there is none. `in_use` says
    whether a profile is in use; without it, one is that a session of this home runs which has not ended. `program` is
    what this process calls itself where it holds sessions.
    """

    paths: Paths
    settings: Settings
    sources: Sources
    shipped_collection: Path | None = None
    progress: Progress | None = None
    in_use: Callable[[ProfileId], bool] | None = None
    program: str = "library"

    @cached_property
    def catalogue(self) -> Catalogue:
        shipped, is_used = self.shipped_collection, self.is_used
        return Catalogue(
            self.paths, self.sources, shipped=shipped, in_use=is_used, keep=self._keep, progress=self.progress
        )

    @cached_property
    def collections(self) -> Collections:
        from amplifierd.profiles.collections.home_collections import (
            Collections,  # loaded when a collection is asked for
        )

        startup = self.settings.startup
        return Collections(self.catalogue, self.profiles, self.paths, self.sources, startup, in_use=self.is_used)

    @cached_property
    def profiles(self) -> Profiles:
        from amplifierd.profiles.builds.home_profiles import Profiles  # loaded when a profile is asked for

        return Profiles(
            self.paths,
            self.settings,
            self.catalogue,
            self.sources,
            in_use=self.is_used,
            keep=self._keep,
            progress=self.progress,
        )

    @cached_property
    def plans(self) -> Plans:
        from .plans.home_plans import Plans  # loaded when a plan is asked for

        return Plans(self.paths, self.profiles, allow_modules=self.settings.security.allow_override_modules)

    @cached_property
    def bundles(self) -> BundleRegistry:
        from amplifierd.profiles.bundles import open_bundles  # loaded when a bundle is asked for

        return open_bundles(self.paths, self.settings, self.progress)

    @cached_property
    def composer(self) -> Composer:
        from .plans.composition import Composer  # loaded when a bundle is used
        from .session_defaults import can_answer, default_profile

        paths, keys, environment = self.paths, self.keys, os.environ
        return Composer(
            paths,
            self.profiles,
            partial(default_profile, paths, self.settings, self.profiles, keys, environment=environment),
            can_answer=lambda entry: can_answer(entry, keys, environment),
            replaced=self.settings.sources.replace,
        )

    @cached_property
    def keys(self) -> Keys:
        from .keys import Keys  # loaded when a key is asked for

        return Keys(self.paths)

    @cached_property
    def source_cache(self) -> SourceCache:
        from .source_cache import SourceCache  # loaded when the cache is looked through

        return SourceCache(self.paths.cache, self.settings.cache, self.collections, self.profiles, self.bundles)

    def _keep(self, secret: str) -> str:
        return self.keys.keep(secret)

    @cached_property
    def trust(self) -> Trust:
        return Trust(self.paths)

    def checkpoints_for(self, directory: Path, working_dir: Path, *, is_trusted: bool = False) -> Checkpoints:
        """Return the checkpoints of `working_dir` that are kept in `directory`.

        `is_trusted` says that the caller vouches for the working directory; else it has to be in `trust`.

        Raises:
            SnapshotRefusedError: no checkpoints are taken of it; the message says why.
        """
        from .checkpoints import Checkpoints  # loaded when a session works in a directory

        settings = self.settings.checkpoints
        if not settings.enabled:
            raise SnapshotRefusedError("checkpoints are switched off (checkpoints.enabled)")
        if why := self.trust.why_no_snapshot(working_dir, is_trusted=is_trusted):
            raise SnapshotRefusedError(f"no checkpoints: {why}", hint="home.trust.add(directory) trusts a directory")
        return Checkpoints(
            directory,
            working_dir,
            max_files=settings.max_files,
            max_bytes=settings.max_bytes,
            timeout_seconds=settings.timeout_seconds,
            exclude=(self.paths.config, self.paths.share, self.paths.cache, self.paths.state),
        )

    @cached_property
    def sessions(self) -> Sessions:
        return self._open_sessions()

    def _open_sessions(self, shared: Runtime | None = None) -> Sessions:
        from .sessions.session_parts import open_sessions  # loaded when a session is asked for

        return open_sessions(
            self.paths,
            self.settings,
            self.profiles,
            self.plans,
            self.catalogue,
            self.keys,
            resolvers=self.resolver,
            composer=lambda: self.composer,
            find_checkpoints=self.checkpoints_for,
            program=self.program,
            shared=shared,
        )

    def with_settings(self, settings: Settings, *, share_sessions: bool = False) -> Home:
        """Return this home as it is with other settings; sessions that are shared have the same store and events."""
        changed = replace(self, settings=settings, sources=_sources(self.paths, settings, self.progress))
        if share_sessions:
            changed.__dict__["sessions"] = changed._open_sessions(self.sessions.runtime)
        return changed

    def with_progress(self, progress: Progress) -> Home:
        """Return this home as it is when it reports the steps of long work."""
        return replace(self, progress=progress, sources=_sources(self.paths, self.settings, progress))

    def is_used(self, profile_id: ProfileId) -> bool:
        """True if a profile's builds and texts are still needed."""
        if self.in_use is not None:
            return self.in_use(profile_id)
        if self.settings.store.is_files and not self.paths.sessions.is_dir():
            return False
        try:
            return self.sessions.uses_profile(profile_id)
        except StoreUnavailableError:
            return True  # it cannot be known, so it may be

    def resolver(self, *, pins: Mapping[str, Path] | None = None) -> DaemonModuleSourceResolver:
        """Return the resolver of this home's compiled modules; `pins` binds profiles to builds."""
        from amplifierd.profiles.builds.module_resolver import (
            DaemonModuleSourceResolver,  # loaded when a session is started
        )

        security = self.settings.security
        sources = self.sources if security.allow_plan_sources else None
        return DaemonModuleSourceResolver(
            self.paths.share, pins=pins, module_roots=security.module_roots, sources=sources
        )


def open_home(
    path: Path | str | None = None,
    *,
    offline: bool | None = None,
    overrides: Mapping[str, Any] | None = None,
    config_file: Path | str | None = None,
    progress: Progress | None = None,
    in_use: Callable[[ProfileId], bool] | None = None,
    shipped_collection: Path | None = None,
) -> Home:
    """Open the home at `path`, else the one that the environment names; nothing is created.

    What killed processes left behind is removed.

    `overrides` are settings that outrank environment and file, `config_file` stands for `config/daemon.yaml`.
    `progress` is called with the steps of long work. `shipped_collection` stands for the collection that comes with the
    distribution.

    Raises:
        SettingsError: a setting is invalid, or a file is where a directory should be.
    """
    paths = Paths.from_environment(path)
    given = dict(overrides or {}) | ({} if offline is None else {"offline": offline})
    file = Path(config_file).expanduser().absolute() if config_file else paths.settings_file
    settings = load_settings(file, overrides=given)
    remove_leftovers(paths)
    return Home(
        paths=paths,
        settings=settings,
        sources=_sources(paths, settings, progress),
        shipped_collection=shipped_collection or find_shipped_collection(),
        progress=progress,
        in_use=in_use,
    )


def _sources(paths: Paths, settings: Settings, progress: Progress | None) -> Sources:
    limits = Limits(file_bytes=settings.cache.http_max_bytes)
    return Sources(paths.cache, offline=settings.offline, progress=progress, limits=limits)


@cache
def remove_leftovers(paths: Paths) -> None:
    """Remove what no one works on any more, once in each process; a few directories are listed, nothing is read."""
    remove_scratch_leftovers()
    if not paths.home.is_dir():
        return
    for directory in (paths.config, paths.share, paths.own_profiles, paths.cache / "git", paths.cache / "env"):
        remove_unfinished(directory)
    remove_cache_leftovers(paths.cache)
