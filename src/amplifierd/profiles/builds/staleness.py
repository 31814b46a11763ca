"""Whether a build still is what its profile says, told without the network; and what to do about it if not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.sources import ResolvedRef
from amplifier_system.urls import HIDDEN
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.documents.inheritance import MergedProfile

from .build_parts import find_added, find_changes, is_intact, is_there, other_parts
from .fingerprints import Fingerprints, hash_files
from .installed_modules import installed_modules
from .lock import (
    DEPENDENCIES_DIR,
    FILE_NAME,
    VERSION,
    LockUnusableError,
    ProfileLock,
    ResourceKey,
    chain_of,
    compute_build_id,
    platform_name,
    python_version,
    read_lock,
)
from .profile_catalogue import Roots
from .publication import find_published
from .resources import Located, ResourceLocator, Wanted, current_commit, find_files, find_wanted, is_near

StatusWord = Literal["missing", "stale", "fresh", "degraded", "invalid", "orphaned"]

ACTIONS = {
    "lock-missing": "everything is compiled, from the cache where it has it",
    "lock-corrupt": "everything is compiled, from the cache where it has it",
    "lock-format": "the lock is backed up and migrated",
    "profile-changed": "the profile is merged again; only what it names differently is resolved",
    "parent-changed": "the profile is merged again; only what it names differently is resolved",
    "resource-missing": "it is restored from the cache",
    "resource-modified": "it is restored from the cache",
    "ref-moved": "it is fetched again",
    "source-changed": "it is copied again",
    "installed-changed": "it is recorded again; dependencies that no longer fit are installed again",
    "environment-changed": "the dependencies are installed again",
    "forced": "everything is resolved again",
}
"""What a compile does for each reason."""

UNREACHABLE = "source-unreachable"
"""The code of a compile whose references are right, and lead to what cannot be had at the moment."""

RESTORABLE = frozenset({"resource-missing", "resource-modified"})
"""Reasons that need nothing new."""

_WHOLE = "lock-missing", "lock-corrupt"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a build is stale: a stable word, and which resource or profile it is about."""

    code: str
    subject: str = ""

    @property
    def action(self) -> str:
        return ACTIONS[self.code]

    def __str__(self) -> str:
        return f"{self.code}: {self.subject}" if self.subject else self.code

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "subject": self.subject, "action": self.action}


@dataclass(frozen=True)
class ProfileStatus:
    """How a profile's build stands."""

    profile_id: ProfileId
    status: StatusWord
    reasons: tuple[Reason, ...] = ()
    build_id: str | None = None
    warnings: tuple[str, ...] = ()
    issues: tuple[Issue, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reason.code for reason in self.reasons))

    def to_dict(self) -> dict[str, Any]:
        return {
            "profile_id": str(self.profile_id),
            "status": self.status,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "build_id": self.build_id,
            "warnings": list(self.warnings),
            "issues": [issue.to_dict() for issue in self.issues],
        }


@dataclass(frozen=True)
class Inspection:
    """A profile compared with its published directory; `lock` is None when there is none to be read."""

    directory: Path | None
    lock: ProfileLock | None
    wanted: Mapping[ResourceKey, Wanted]
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    stale: Mapping[ResourceKey, str] = field(default_factory=dict)
    """The resources that cannot be taken over from the build before, each with the reason's word."""
    near: Mapping[ResourceKey, ResolvedRef | None] = field(default_factory=dict)
    """The resources that are used from this machine, and where they are; None for what is installed."""

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reason.code for reason in self.reasons))

    @property
    def has_damaged_dependencies(self) -> bool:
        return any(reason.subject == DEPENDENCIES_DIR for reason in self.reasons)

    def find_reusable(self, wanted: Wanted) -> Mapping[str, Any] | None:
        """Return what is locked for a resource that can be taken over as it is."""
        locked = _locked(self.lock).get(wanted.key)
        if locked is None or locked["ref"] != wanted.locked_ref or wanted.key in self.stale:
            return None
        if HIDDEN in str(locked["ref"]):  # what is hidden may be what tells two downloads apart
            return None
        return locked


async def inspect(
    paths: Paths,
    locator: ResourceLocator,
    merged: MergedProfile,
    roots: Roots,
    fingerprints: Fingerprints,
    *,
    refresh: bool = False,
    verify: bool = False,
) -> Inspection:
    """Compare a profile with its published build. `refresh` asks remotes what moved, `verify` hashes every file.

    Raises:
        FormatUnsupportedError: a newer version wrote the lock.
        ProfileCompilationError: the profile names two sources for one module; or, with `refresh`, a remote no longer
            has what the profile names.
    """
    directory, lock, wanted, reason = await asyncio.to_thread(_read, paths, merged, roots)
    if directory is None or lock is None:
        return Inspection(directory, None, wanted, (reason or Reason("lock-missing"),))
    changed = () if verify else await asyncio.to_thread(find_changes, paths, merged.profile_id, directory, lock)
    looking = _Looking(paths, locator, merged, roots, fingerprints, directory, lock, wanted, changed)
    await looking.resolve_sources()
    if refresh:
        await looking.look_at_remotes()
    await asyncio.to_thread(looking.look, verify=verify)
    if FILE_NAME in changed:  # nothing that it says is taken over
        return Inspection(directory, None, wanted, tuple(looking.reasons) or (Reason("lock-corrupt"),))
    return Inspection(
        directory, lock, wanted, tuple(looking.reasons), tuple(looking.warnings), looking.stale, looking.near
    )


class _Looking:
    """One comparison, which collects its reasons."""

    def __init__(
        self,
        paths: Paths,
        locator: ResourceLocator,
        merged: MergedProfile,
        roots: Roots,
        fingerprints: Fingerprints,
        directory: Path,
        lock: ProfileLock,
        wanted: Mapping[ResourceKey, Wanted],
        changed: Sequence[str],
    ) -> None:
        self._changed = frozenset(changed)
        self._paths, self._locator = paths, locator
        self._merged, self._roots, self._fingerprints = merged, roots, fingerprints
        self._directory, self._lock, self._wanted = directory, lock, wanted
        self._locked = {
            key: entry for key, entry in lock.resources() if key in wanted and entry["ref"] == wanted[key].locked_ref
        }
        self.reasons: list[Reason] = []
        self.warnings: list[str] = []
        self.stale: dict[ResourceKey, str] = {}
        self.near: dict[ResourceKey, ResolvedRef | None] = {}

    def _note(self, code: str, key: ResourceKey) -> None:
        if key not in self.stale:
            self.stale[key] = code
            self.reasons.append(Reason(code, "/".join(key)))

    def look(self, *, verify: bool) -> None:
        """Look at everything that is on this machine."""
        self._look_at_sources(verify=verify)
        self._look_at_build(verify=verify)
        self._look_at_host()
        self._compare_profile()

    async def resolve_sources(self) -> None:
        """Find out where the resources are that are used from this machine."""
        for key, entry in self._locked.items():
            if entry["status"] == "ok" and is_near(self._wanted[key], self._roots):
                try:
                    self.near[key] = await self._locator.resolve(self._wanted[key], self._roots)
                except AmplifierError as error:
                    self._note_lost(key, error)

    def _note_lost(self, key: ResourceKey, error: AmplifierError) -> None:
        if self._locked[key]["kind"] == "installed":
            self._note("installed-changed", key)
        else:
            self.warnings.append(f"source-missing: {self._wanted[key]}: {error.message}")  # the build has its own copy

    def _look_at_sources(self, *, verify: bool) -> None:
        """Compare what is used from this machine, and what is installed, with what is locked."""
        installed = installed_modules()
        for key, resolved in self.near.items():
            entry = self._locked[key]
            try:
                located = find_files(self._wanted[key], resolved, installed)
            except AmplifierError as error:
                self._note_lost(key, error)
                continue
            found = self._fingerprints.hash_of("/".join(key), located.content, always=verify)
            if located.kind == "installed":
                if (found, located.version) != (entry["content_hash"], entry.get("version")):
                    self._note("installed-changed", key)
            elif found != entry["content_hash"]:
                self._note("source-changed", key)
        for key, entry in self._locked.items():
            commit = current_commit(self._wanted[key], self._roots)
            if commit is not None and commit != entry["commit"]:
                self._note("ref-moved", key)

    async def look_at_remotes(self) -> None:
        """Ask where the references that can move point now, and try again what could not be had before."""
        movable = [
            self._wanted[key]
            for key, entry in self._locked.items()
            if entry["kind"] in ("git", "fsspec") and entry["mutable"] and entry["status"] == "ok"
        ]
        asked = await asyncio.gather(
            *(self._locator.locate(each, self._roots, refresh=True) for each in movable), return_exceptions=True
        )
        if failures := [each for each in asked if isinstance(each, BaseException)]:
            raise _unreachable(self._merged.profile_id, failures)
        for each in (each for each in asked if isinstance(each, Located)):
            entry = self._locked[each.wanted.key]
            if each.kind == "git":
                moved = each.commit != entry["commit"]
            else:
                moved = await asyncio.to_thread(hash_files, each.content) != entry["content_hash"]
            if moved:
                self._note("ref-moved", each.wanted.key)
        for key, entry in self._locked.items():
            if entry["status"] == "missing":
                self._note("resource-missing", key)
        if any(name in self._lock.degraded for _, name in self._locked) and not self.stale:
            self.reasons.append(Reason("resource-missing", DEPENDENCIES_DIR))

    def _look_at_build(self, *, verify: bool) -> None:
        """Compare the build's files with its lock."""
        damaged = self._changed if verify else self._changed | self._fingerprints.damaged(self._directory)
        found: list[str] = []
        parts = {key: entry for key, entry in self._locked.items() if entry["path"] and entry["status"] == "ok"}
        for key, entry in parts.items():
            if not is_there(self._directory / entry["path"]):
                self._note("resource-missing", key)
            elif entry["path"] in damaged or (verify and not is_intact(self._directory, entry)):
                self._note("resource-modified", key)
                found.append(entry["path"])
        for part in other_parts(self._lock):
            name = part["path"]
            if not is_there(self._directory / name):
                self.reasons.append(Reason("resource-missing", name))
            elif name in damaged or (verify and not is_intact(self._directory, part)):
                self.reasons.append(Reason("resource-modified", name))
                found.append(name)
        entries = [*(entry for _, entry in self._lock.resources()), *other_parts(self._lock)]
        locked = {FILE_NAME, *(entry["path"] for entry in entries)}
        added = find_added(self._directory, locked) if verify else sorted(damaged - locked)
        self.reasons += [Reason("resource-modified", name) for name in added]
        if verify:
            self._fingerprints.note_damage(self._directory, [*found, *added])

    def _look_at_host(self) -> None:
        """Compare what the host provides with what the lock says that it provided."""
        if recorded := self._lock.pins("host"):
            from amplifier_foundation.modules.requirements import host_packages  # few builds lean on these

            versions = host_packages(self._paths.cache).versions
            changed = [pin for pin in recorded if versions.get(pin.partition("==")[0]) != pin.partition("==")[2]]
            self.reasons += [Reason("installed-changed", pin) for pin in changed]

    def _compare_profile(self) -> None:
        """Compare the profile's text, its ancestors' and what they make together with what was compiled."""
        lock, merged = self._lock, self._merged
        first: list[Reason] = []
        if lock.stored_version < VERSION:
            first.append(Reason("lock-format"))
        if lock.profile_hash != merged.document.profile_hash:
            first.append(Reason("profile-changed"))
        if lock.chain != chain_of(merged) and lock.build_id:
            changed = dict(chain_of(merged)).items() ^ dict(lock.chain).items()
            first += [Reason("parent-changed", name) for name in sorted({name for name, _ in changed}) or [""]]
        if lock.build_id and (lock.data["python"], lock.data["platform"]) != (python_version(), platform_name()):
            first.append(Reason("environment-changed"))
        elif not first and compute_build_id(merged, lock.resources()) != lock.build_id:
            first.append(Reason("profile-changed", "overlay"))
        elif not first and self._wanted.keys() != dict(lock.resources()).keys():
            first.append(Reason("profile-changed", "agents"))  # of the collection, which the profile takes all
        self.reasons[:0] = first


def _read(
    paths: Paths, merged: MergedProfile, roots: Roots
) -> tuple[Path | None, ProfileLock | None, dict[ResourceKey, Wanted], Reason | None]:
    """Return a profile's published directory, its lock, what the profile wants, and why there is no lock if so."""
    directory = find_published(paths, merged.profile_id)
    try:
        lock = read_lock(directory or paths.profile_dir(merged.profile_id))
    except LockUnusableError as error:
        return directory, None, find_wanted(merged, roots), Reason(error.code)
    return directory, lock, find_wanted(merged, roots, list(_locked(lock))), None


def _unreachable(profile_id: ProfileId, failures: Iterable[BaseException]) -> BaseException:
    """Return one error for all references that remotes cannot answer for."""
    entries = []
    for failure in failures:
        if not isinstance(failure, AmplifierError):
            return failure
        entries.append(failure.message)
    lines = "".join(f"\n  {text}" for text in entries)
    return ProfileCompilationError(
        f"Profile {profile_id} cannot be refreshed:{lines}", code=UNREACHABLE, problems=entries
    )


def _locked(lock: ProfileLock | None) -> dict[ResourceKey, Mapping[str, Any]]:
    return dict(lock.resources()) if lock is not None else {}
