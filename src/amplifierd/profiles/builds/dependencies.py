"""What the modules of a build require: installed together into the build, with exact versions for its lock."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import SESSION_MEMBERS
from amplifier_core.packages import bare_name
from amplifier_foundation.modules.installer import (
    InstallError,
    NoInstallerError,
    RequirementConflict,
    install_together,
)
from amplifier_foundation.modules.requirements import (
    HostPackages,
    applies,
    extras_of,
    host_packages,
    is_clearly_met,
    name_of,
    normalise_name,
    read_requirements,
)
from amplifier_foundation.sources.store import remove
from amplifier_system.tasks import run_to_end
from amplifier_system.threads import in_thread
from amplifierd.exceptions import ProfileCompilationError

from .fingerprints import hash_files, list_content
from .lock import (
    DEPENDENCIES_DIR,
    DEPENDENCY_MISSING,
    DEPENDENCY_REASON,
    ProfileLock,
    ResourceKey,
    platform_name,
    python_version,
)
from .publication import link_tree

logger = logging.getLogger(__name__)

_KEPT = "versions-kept"

Pin = dict[str, str]
Needs = Mapping[str, Sequence[str]]
"""Module ID → requirement lines."""


@dataclass(frozen=True)
class Dependencies:
    """What came of the requirements: exact pins by module, the hash of what was installed, and what is lacking."""

    pins: Mapping[str, list[Pin]] = field(default_factory=dict)
    content_hash: str | None = None
    degraded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def locked(self) -> dict[str, Any] | None:
        """Return what the lock says of the directory, `None` when there is none."""
        return {"path": DEPENDENCIES_DIR, "content_hash": self.content_hash} if self.content_hash else None


@dataclass(frozen=True)
class Earlier:
    """The build before: its directory, None when it is gone, and its lock.

    `is_damaged` says that its installed dependencies cannot be used.
    """

    directory: Path | None
    lock: ProfileLock
    is_damaged: bool = False


class DependencyInstaller:
    """Puts the dependencies of a build's modules into its directory.

    Args:
        staging: the directory of the build.
        modules: its copied modules, each with its directory in `staging`.
        installed: the modules that it takes from the host; what their extras bring, the host provides.
        earlier: the build before; its installed versions are kept as far as they still fit.
        mode: `auto`, or `never` to leave everything to the host that runs the build.
        offline: nothing can be fetched.
        only_pins: install exactly the versions of the earlier build.
        allow_builds: build what has no wheel.
        on_install: told which modules packages are being installed for.
    """

    def __init__(
        self,
        staging: Path,
        modules: Mapping[ResourceKey, Path],
        *,
        cache_dir: Path,
        installed: Collection[str] = (),
        earlier: Earlier | None = None,
        mode: str = "auto",
        offline: bool = False,
        only_pins: bool = False,
        allow_builds: bool = False,
        on_install: Callable[[str], None] = lambda modules: None,
    ) -> None:
        self._on_install = on_install
        self._staging, self._target = staging, staging / DEPENDENCIES_DIR
        self._modules, self._cache_dir, self._earlier = modules, cache_dir, earlier
        self._mode, self._offline, self._only_pins = mode, offline, only_pins
        self._allow_builds = allow_builds
        self._extras = {bare_name(module_id) for module_id in installed}
        self._reasons: dict[str, str] = {}
        self._required = {name for section, name in modules if section in SESSION_MEMBERS}

    async def install(self) -> Dependencies:
        """Install what is required.

        Raises:
            ProfileCompilationError: requirements contradict each other (`dependency-conflict`), or those of the
                orchestrator or the context cannot be met (`dependency-missing`).
        """
        needs = await in_thread(lambda stop: self._read_needs())
        host = await in_thread(lambda stop: host_packages(self._cache_dir, extras=self._extras))
        if (kept := await in_thread(lambda stop: self._keep(needs, host))) is not None:
            return kept
        unmet = {owner: found for owner, lines in needs.items() if (found := _unmet(lines, host))}
        if not unmet:
            return await in_thread(lambda stop: self._settle(needs, host, {}))
        if self._mode == "never":
            warnings = _warnings(unmet)
            return await in_thread(lambda stop: self._settle(needs, host, {}, warnings))
        failed = await self._install_all(needs, unmet, host)
        return await in_thread(lambda stop: self._settle(needs, host, {owner: unmet[owner] for owner in failed}))

    def _read_needs(self) -> dict[str, tuple[str, ...]]:
        found = {name: read_requirements(directory) for (_, name), directory in self._modules.items()}
        return {name: lines for name, lines in found.items() if lines}

    def _keep(self, needs: Needs, host: HostPackages) -> Dependencies | None:
        """Take the earlier build's dependencies if they are still what is needed; None if not."""
        earlier = self._earlier
        if earlier is None or earlier.directory is None or earlier.is_damaged or not earlier.lock.build_id:
            return None
        lock = earlier.lock
        if (lock.data["python"], lock.data["platform"]) != (python_version(), platform_name()):
            return None
        if needs != _earlier_needs(earlier.directory, lock) or not _still_fits(earlier.directory, lock, needs, host):
            return None
        if lock.dependencies is not None:
            link_tree(earlier.directory / DEPENDENCIES_DIR, self._target)
        lacking = {owner: () for owner in needs if owner in lock.degraded}
        warnings = tuple(text for text in lock.warnings if text.startswith((DEPENDENCY_MISSING, DEPENDENCY_REASON)))
        return self._settle(needs, host, lacking, warnings, lock.dependencies)

    async def _install_all(self, needs: Needs, unmet: Needs, host: HostPackages) -> list[str]:
        """Install everything, or everything but what some modules require; return those modules."""
        if self._offline:
            return self._give_up(list(unmet), "offline, and nothing can be fetched")
        failed: list[str] = []
        while rest := {owner: lines for owner, lines in needs.items() if owner not in failed}:
            left = {owner: lines for owner, lines in unmet.items() if owner in rest}
            if not left:
                break
            try:
                await self._try(rest, host)
                break
            except RequirementConflict as error:
                owners = [owner for owner in rest if any(_is_claimed(claim, owner) for claim, _ in error.claims)]
                if len(owners) > 1:
                    raise ProfileCompilationError(error.message, code="dependency-conflict", hint=error.hint) from error
                failed += self._give_up(owners or await self._find_culprits(left, host), error.message)
            except InstallError as error:
                named = [owner for owner in left if f"(from {owner}" in error.message]
                failed += self._give_up(named or await self._find_culprits(left, host), error.message, error.hint)
            except NoInstallerError as error:
                failed += self._give_up(list(left), error.message)
        return [owner for owner in needs if owner in failed]

    def _give_up(self, owners: list[str], reason: str, hint: str = "") -> list[str]:
        fatal = [owner for owner in owners if owner in self._required]
        if fatal or not owners:
            named = ", ".join(fatal) or "the modules"
            raise ProfileCompilationError(
                f"{DEPENDENCY_MISSING}: {named}: {reason}", code=DEPENDENCY_MISSING, hint=hint
            )
        logger.warning("%s: %s: %s%s", DEPENDENCY_MISSING, ", ".join(owners), reason, f" ({hint})" if hint else "")
        self._reasons.update(dict.fromkeys(owners, reason))
        return owners

    async def _try(self, needs: Needs, host: HostPackages) -> None:
        """Install into the build: with the versions that the earlier build had, else with whatever fits."""
        kept = self._kept_pins(needs)
        if kept:
            try:
                await self._run({**needs, _KEPT: kept}, host)
            except InstallError:
                if self._only_pins:
                    raise
            else:
                return
        await self._run(needs, host)

    async def _run(self, needs: Needs, host: HostPackages) -> None:
        await asyncio.to_thread(remove, self._target)
        self._on_install(", ".join(owner for owner in needs if owner != _KEPT))
        try:
            await install_together(needs, self._target, host, allow_builds=self._allow_builds)
        except BaseException:
            await run_to_end(asyncio.to_thread(remove, self._target))
            raise

    def _kept_pins(self, needs: Needs) -> list[str]:
        if self._earlier is None:
            return []
        directory, lock = self._earlier.directory, self._earlier.lock
        before = needs if directory is None else _earlier_needs(directory, lock)
        entries = [entry for entry in lock.modules() if before.get(entry["name"]) == needs.get(entry["name"])]
        return sorted({pin["pin"] for entry in entries for pin in entry["requirements"] if pin["from"] == "build"})

    async def _find_culprits(self, unmet: Needs, host: HostPackages) -> list[str]:
        """Return the modules whose requirements cannot be met even alone."""
        if len(unmet) == 1:
            return list(unmet)
        failed = []
        for owner, lines in unmet.items():
            with tempfile.TemporaryDirectory(dir=self._staging.parent, prefix=".staging-") as directory:
                try:
                    target, builds = Path(directory, "target"), self._allow_builds
                    await install_together({owner: lines}, target, host, allow_builds=builds)
                except (InstallError, NoInstallerError):
                    failed.append(owner)
        return failed

    def _settle(
        self,
        needs: Needs,
        host: HostPackages,
        failed: Needs,
        warnings: Sequence[str] = (),
        kept: Mapping[str, Any] | None = None,
    ) -> Dependencies:
        """Say what each module got; an empty directory is not kept."""
        installed = _installed_in(self._target)
        if not installed:
            remove(self._target)
        pins = {owner: _pins_of(lines, installed, host) for owner, lines in needs.items()}
        content_hash = None
        if installed:
            content = list_content({"": self._target}, boundary=self._target, ref=DEPENDENCIES_DIR)
            content_hash = kept["content_hash"] if kept else hash_files(content)
        # Offline, nothing was tried.
        reasons = [] if self._offline else _explanations(failed, host, self._reasons)
        return Dependencies(pins, content_hash, tuple(failed), (*_warnings(failed), *reasons, *warnings))


def _unmet(lines: Sequence[str], host: HostPackages) -> tuple[str, ...]:
    return tuple(line for line in lines if applies(line) and not host.satisfies(line))


def _warnings(lacking: Needs) -> tuple[str, ...]:
    return tuple(f"{DEPENDENCY_MISSING}: {owner}: {line}" for owner, lines in lacking.items() for line in lines)


def _explanations(lacking: Needs, host: HostPackages, reasons: Mapping[str, str]) -> Iterator[str]:
    """Say why each module lacks what it requires: which versions the host has, else what the installer said."""
    for owner, lines in lacking.items():
        provided = [(line, name_of(line)) for line in lines if host.provides(name_of(line))]
        entries = [
            f"{line} excludes {name} {host.versions[name]}, which the host has{host.users_of(name)}; use a version of"
            f" {owner} that agrees with it"
            for line, name in provided
        ]
        if why := "; ".join(entries) or reasons.get(owner, ""):
            yield f"{DEPENDENCY_REASON}: {owner}: {why}"


def _is_claimed(claimant: str, owner: str) -> bool:
    """True if a claim of a conflict, `a` or `a, b (through c)`, is a module's."""
    return owner in claimant.partition(" (through")[0].split(", ")


def _earlier_needs(directory: Path, lock: ProfileLock) -> dict[str, tuple[str, ...]]:
    directories = {entry["name"]: entry["path"] for entry in lock.modules() if entry["path"]}
    found = {name: read_requirements(directory / path) for name, path in directories.items()}
    return {name: lines for name, lines in found.items() if lines}


def _still_fits(directory: Path, lock: ProfileLock, needs: Needs, host: HostPackages) -> bool:
    """True if the host still provides what the earlier build took from it, in versions that its parts accept."""
    recorded = dict(pin.split("==", 1) for pin in lock.pins("host"))
    changed = {name for name, version in recorded.items() if host.versions.get(name) != version} - host.ours
    if not changed:
        return True
    lines = [line for found in needs.values() for line in found]
    for _, requires in _installed_in(directory / DEPENDENCIES_DIR).values():
        lines += requires
    return all(
        name_of(line) in host.versions and is_clearly_met(line, host.versions[name_of(line)])
        for line in lines
        if name_of(line) in changed
    )


def _installed_in(directory: Path) -> dict[str, tuple[str, list[str]]]:
    """Return the distributions in a directory: name → version and what they require."""
    if not directory.is_dir():
        return {}
    found = importlib.metadata.distributions(path=[str(directory)])
    return {normalise_name(each.name): (each.version, each.requires or []) for each in found}


def _pins_of(lines: Sequence[str], installed: Mapping[str, tuple[str, list[str]]], host: HostPackages) -> list[Pin]:
    """Return exact versions of all that some requirements bring with them."""
    pins: dict[str, Pin] = {}
    waiting, seen = _needed(lines), set[tuple[str, frozenset[str]]]()
    while waiting:
        name, extras = needed = waiting.pop()
        if needed in seen:
            continue
        seen.add(needed)
        if name in installed:
            version, requires = installed[name]
            pins[name] = {"pin": f"{name}=={version}", "from": "build"}
            waiting += _needed(requires, extras)
        elif host.provides(name):
            pins[name] = {"pin": f"{name}=={host.versions[name]}", "from": "host"}
    return [pins[name] for name in sorted(pins)]


def _needed(lines: Sequence[str], extras: frozenset[str] = frozenset()) -> list[tuple[str, frozenset[str]]]:
    """Return what some requirements name, with the extras of each; those whose marker does not hold are left out."""
    return [(name_of(line), extras_of(line)) for line in lines if applies(line, extras)]
