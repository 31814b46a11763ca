"""From a merged profile to a published build: resolve, copy, install, lock, publish; all of it or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import GitReference, UrlReference, ZipReference, parse_reference
from amplifier_foundation.sources.resolved import IGNORED_NAMES, IGNORED_PATTERNS, UNPINNED
from amplifier_foundation.sources.store import make_directory, now, remove
from amplifier_system.files import write_atomically
from amplifier_system.tasks import run_to_end
from amplifier_system.threads import Stop, in_thread
from amplifier_system.urls import shown
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import ProfileId
from amplifierd.profiles.documents.inheritance import MergedProfile
from amplifierd.profiles.documents.literal_secrets import conceal
from amplifierd.stored_json import write_json

from . import publication
from .build import INSTRUCTION_FILE, ORIGINS_FILE, PLAN_FILE, WRITTEN, Build
from .dependencies import Dependencies, DependencyInstaller, Earlier
from .fingerprints import Fingerprints, copy_files, hash_files, list_content
from .lock import (
    FILE_NAME,
    VERSION,
    ProfileLock,
    ResourceKey,
    compute_build_id,
    make_lock,
    platform_name,
    python_version,
    resource_path,
    write_lock,
)
from .origins import find_origins
from .plan_generation import generate_portable
from .profile_catalogue import Roots
from .resources import Located, ResourceError, Wanted, find_wanted
from .sharing import CompileContext
from .staleness import RESTORABLE, UNREACHABLE, Inspection, Reason

logger = logging.getLogger(__name__)

MISSING = "module-missing"

_PARALLEL = 8
_IGNORED = shutil.ignore_patterns(*IGNORED_NAMES, *IGNORED_PATTERNS)


@dataclass(frozen=True)
class _Failure:
    wanted: Wanted
    error: AmplifierError

    def __str__(self) -> str:
        return f"{self.wanted}: {self.error.message}"


class Compilation:
    """One compile of one profile, whose lock the caller holds.

    Args:
        inspection: how the profile stands; what it does not call stale is taken over from the build before.
        force: take nothing over, and ask remotes again.
        frozen: restore what was locked, and nothing else.
        only: make the build of this id or none, and leave the profile's path as it is.
        on_install: told which modules packages are being installed for.
    """

    def __init__(
        self,
        context: CompileContext,
        merged: MergedProfile,
        roots: Roots,
        inspection: Inspection,
        fingerprints: Fingerprints,
        *,
        force: bool = False,
        frozen: bool = False,
        only: str | None = None,
        on_install: Callable[[str], None] = lambda modules: None,
    ) -> None:
        self._on_install = on_install
        self._context, self._merged, self._roots = context, merged, roots
        self._inspection, self._fingerprints = inspection, fingerprints
        self._force, self._frozen, self._only = force, frozen, only
        self._warnings: list[str] = []

    @property
    def _profile_id(self) -> ProfileId:
        return self._merged.profile_id

    async def run(self) -> Build:
        """Make the build and publish it.

        Raises:
            ProfileCompilationError: it cannot be made; the one before is as it was.
        """
        inspection = self._inspection
        kept = {} if self._force else self._find_kept()
        located, missing = await self._locate([each for key, each in inspection.wanted.items() if key not in kept])
        staging = await in_thread(lambda stop: publication.make_staging(self._context.paths, self._profile_id))
        try:
            entries = await in_thread(lambda stop: self._stage(staging, kept, located, missing, stop))
            lock = await self._finish(staging, entries)
            return await in_thread(lambda stop: self._publish(staging, lock, located))
        finally:
            await run_to_end(asyncio.to_thread(remove, staging))

    def _find_kept(self) -> dict[ResourceKey, Mapping[str, Any]]:
        """Return what is taken over from the build before, by what it is known by, as it is locked."""
        found = {key: self._inspection.find_reusable(wanted) for key, wanted in self._inspection.wanted.items()}
        return {key: entry for key, entry in found.items() if entry is not None}

    async def _locate(self, wanted: Sequence[Wanted]) -> tuple[dict[ResourceKey, Located], dict[ResourceKey, _Failure]]:
        """Resolve references, some at a time; all failures are reported together.

        Raises:
            ProfileCompilationError: one failed that there is no build without.
        """
        slots = asyncio.Semaphore(_PARALLEL)

        async def locate_one(each: Wanted) -> Located | _Failure:
            async with slots:
                try:
                    commit = self._locked_commit(each)
                    return await self._context.locator.locate(each, self._roots, refresh=self._force, commit=commit)
                except (RefResolutionError, ProfileCompilationError) as error:
                    return _Failure(each, error)

        found = await asyncio.gather(*map(locate_one, wanted))
        located = {each.wanted.key: each for each in found if isinstance(each, Located)}
        failures = [each for each in found if isinstance(each, _Failure)]
        return located, self._sort_out(failures)

    def _sort_out(self, failures: Sequence[_Failure]) -> dict[ResourceKey, _Failure]:
        """Return the failures that the build is made in spite of."""
        keep_going = self._context.settings.keep_going
        if any(each.wanted.is_required or not keep_going for each in failures):
            raise _failed(self._profile_id, failures)
        for each in failures:
            logger.warning("profile %s is built without %s", self._profile_id, each)
        return {each.wanted.key: each for each in failures}

    def _locked_commit(self, wanted: Wanted) -> str | None:
        """Return the commit that a damaged resource is restored from."""
        if self._force or self._inspection.lock is None or self._inspection.stale.get(wanted.key) not in RESTORABLE:
            return None
        commit = dict(self._inspection.lock.resources())[wanted.key]["commit"]
        return str(commit) if commit else None

    def _stage(
        self,
        staging: Path,
        kept: Mapping[ResourceKey, Mapping[str, Any]],
        located: Mapping[ResourceKey, Located],
        missing: Mapping[ResourceKey, _Failure],
        stop: Stop,
    ) -> dict[ResourceKey, dict[str, Any]]:
        """Fill the staging directory with resources, and return their entries for the lock, in the profile's order."""
        entries: dict[ResourceKey, dict[str, Any]] = {}
        failures: list[_Failure] = []
        for key, wanted in self._inspection.wanted.items():
            stop.check()
            try:
                if key in kept:
                    entries[key] = self._take_over(staging, key, kept[key])
                elif key in missing:
                    entries[key] = _entry(key, wanted.locked_ref, status="missing")
                    self._warnings.append(f"{MISSING}: {key[1]}: {missing[key].error.message}")
                else:
                    entries[key] = self._copy(staging, located[key], stop)
            except (RefResolutionError, ProfileCompilationError) as error:
                failures.append(_Failure(wanted, error))
        if failures:
            raise _failed(self._profile_id, failures)
        return entries

    def _take_over(self, staging: Path, key: ResourceKey, locked: Mapping[str, Any]) -> dict[str, Any]:
        assert self._inspection.lock is not None
        if locked["status"] == "missing":
            prefix = f"{MISSING}: {key[1]}: "
            self._warnings += [text for text in self._inspection.lock.warnings if text.startswith(prefix)]
        if locked["path"] is None:
            return dict(locked)
        assert self._inspection.directory is not None  # the files are in it
        source, target = self._inspection.directory / locked["path"], staging / locked["path"]
        move = publication.link_or_copy
        make_directory(target.parent)
        if source.is_dir():
            shutil.copytree(source, target, copy_function=move, ignore=_IGNORED)
        else:
            move(str(source), str(target))
        content_hash = locked["content_hash"]
        if content_hash is None:
            content_hash = hash_files(list_content({"": target}, boundary=target, ref=locked["path"]))
        return {**locked, "content_hash": content_hash}

    def _copy(self, staging: Path, located: Located, stop: Stop) -> dict[str, Any]:
        key, ref = located.wanted.key, located.wanted.locked_ref
        self._warnings += [text for text in located.warnings if not text.startswith(UNPINNED)]
        found = {"commit": located.commit, "mutable": located.mutable, "resolved_at": located.resolved_at}
        if located.kind == "installed":
            content_hash = self._fingerprints.hash_of(str(located.wanted), located.content)
            entry = _entry(key, ref, kind="installed", content_hash=content_hash, **found)
            return {**entry, "version": located.version}
        target = staging / resource_path(key)
        if key[0] != "agents":
            make_directory(target)
        content_hash = copy_files(located.content, target, check=stop.check)
        if key[0] == "agents":
            _check_text(target, str(ref))
        entry = _entry(key, ref, kind=located.kind, content_hash=content_hash, path=resource_path(key), **found)
        if self._frozen or self._locked_commit(located.wanted) is not None:
            entry = self._check_restored(located.wanted, entry)
        if located.kind == "local":
            self._fingerprints.learn(str(located.wanted), located.content, content_hash)
        return entry

    def _check_restored(self, wanted: Wanted, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry as it was locked, if what was restored is the same as before."""
        assert self._inspection.lock is not None
        locked = dict(self._inspection.lock.resources())[wanted.key]
        if locked["content_hash"] not in (None, entry["content_hash"]):
            raise RefResolutionError(
                f"the cached files of {shown(wanted.ref)} are not those that were locked",
                str(wanted.ref),
                "integrity",
                hint="delete the cache, or compile with force",
            )
        return {**locked, "content_hash": entry["content_hash"]}

    async def _finish(self, staging: Path, entries: Mapping[ResourceKey, dict[str, Any]]) -> ProfileLock:
        """Install dependencies, and write what is beside the resources."""
        inspection, context = self._inspection, self._context
        earlier = None
        if inspection.lock is not None and not self._force:
            earlier = Earlier(inspection.directory, inspection.lock, inspection.has_damaged_dependencies)
        installer = DependencyInstaller(
            staging,
            {key: staging / entry["path"] for key, entry in entries.items() if _is_copied_module(key, entry)},
            cache_dir=context.paths.cache,
            installed=[name for (_, name), entry in entries.items() if entry["kind"] == "installed"],
            earlier=earlier,
            mode=context.settings.install_dependencies,
            offline=context.offline,
            only_pins=self._frozen,
            allow_builds=context.settings.allow_builds,
            on_install=self._on_install,
        )
        dependencies = await installer.install()
        return await in_thread(lambda stop: self._write(staging, entries, dependencies))

    def _write(
        self, staging: Path, entries: Mapping[ResourceKey, dict[str, Any]], dependencies: Dependencies
    ) -> ProfileLock:
        """Write the files of a build; the directory that they share is synchronised once, after the lock."""
        for (_, name), entry in entries.items():
            if name in dependencies.pins and entry["path"]:
                entry["requirements"] = dependencies.pins[name]
        missing = [name for (_, name), entry in entries.items() if entry["status"] == "missing"]
        issues = [f"{issue.code}: {issue.message}" for issue in self._merged.issues if issue.severity == "warning"]
        unpinned = [f"{UNPINNED}: {shown(entry['ref'])}" for entry in entries.values() if _is_unpinned(entry["ref"])]
        text = self._merged.document.text.encode()
        write_atomically(staging / publication.PROFILE_FILE, text, private=True, lasting=False)
        lock = make_lock(
            self._merged,
            entries,
            written=self._write_texts(staging, entries),
            dependencies=dependencies.locked(),
            degraded=[*missing, *dependencies.degraded],
            warnings=list(dict.fromkeys([*issues, *unpinned, *self._warnings, *dependencies.warnings])),
        )
        self._carry_over(staging)
        write_lock(staging, lock)
        return lock

    def _write_texts(self, staging: Path, entries: Mapping[ResourceKey, Mapping[str, Any]]) -> dict[str, str]:
        """Write plan, instruction and origins, and return their hashes."""
        agents = [name for section, name in entries if section == "agents"]
        plan = conceal(generate_portable(self._merged, staging, agents), self._context.keep)
        body = self._merged.body
        origins = find_origins(self._merged, plan, self._context.paths)
        write_json(staging / PLAN_FILE, plan, private=True, lasting=False)
        write_atomically(staging / INSTRUCTION_FILE, f"{body}\n".encode() if body else b"", lasting=False)
        write_json(staging / ORIGINS_FILE, origins, lasting=False)
        return {name: f"sha256:{hashlib.sha256((staging / name).read_bytes()).hexdigest()}" for name in WRITTEN}

    def _carry_over(self, staging: Path) -> None:
        """Keep backups of older locks."""
        inspection = self._inspection
        directory = inspection.directory
        if directory is None:
            return
        for backup in directory.glob(f"{FILE_NAME}.v*.bak"):
            publication.link_or_copy(str(backup), str(staging / backup.name))
        if inspection.lock is not None and inspection.lock.stored_version < VERSION:
            name = f"{FILE_NAME}.v{inspection.lock.stored_version}.bak"
            with contextlib.suppress(FileExistsError):
                shutil.copy2(directory / FILE_NAME, staging / name)

    def _publish(self, staging: Path, lock: ProfileLock, located: Iterable[ResourceKey]) -> Build:
        paths, before = self._context.paths, self._inspection
        if self._only is not None:
            self._check_only(lock)
            directory = publication.place(paths, self._profile_id, staging, lock.build_id)
            return Build.of(self._profile_id, directory, lock)
        if before.directory is not None and before.lock is not None and self._is_same(lock, before):
            self._remember(before.directory)
            return Build.of(self._profile_id, before.directory, before.lock)
        directory = publication.publish(paths, self._profile_id, staging, lock.build_id)
        self._remember(directory)
        if not self._context.in_use(self._profile_id):
            replaced = {before.lock.build_id} - {lock.build_id} if before.lock is not None else ()
            publication.remove_old_builds(paths, self._profile_id, keep=replaced)
        logger.info("profile %s is built: %s (%d resolved)", self._profile_id, lock.build_id, len(list(located)))
        return Build.of(self._profile_id, directory, lock)

    def _check_only(self, lock: ProfileLock) -> None:
        """Refuse a build of another id, and say what about it is another."""
        if lock.build_id == self._only:
            return
        before = dict(self._inspection.lock.resources()) if self._inspection.lock is not None else {}
        changed = ["/".join(key) for key, entry in lock.resources() if not _is_same_resource(entry, before.get(key))]
        raise ProfileCompilationError(
            f"build {self._only} of profile {self._profile_id} cannot be made here: {', '.join(changed)} "
            f"would differ from the lock, which makes build {lock.build_id}",
            code="frozen",
            problems=changed,
        )

    def _is_same(self, lock: ProfileLock, before: Inspection) -> bool:
        """True if the published build is what was just made, so that there is no reason for another."""
        assert before.lock is not None
        is_link = self._context.paths.profile_dir(self._profile_id).is_symlink()
        is_whole = before.lock.stored_version == VERSION and not RESTORABLE & set(before.codes)
        return is_link and is_whole and lock.is_same_build(before.lock)

    def _remember(self, directory: Path) -> None:
        self._fingerprints.forget_except(str(wanted) for wanted in self._inspection.wanted.values())
        self._fingerprints.note_damage(directory, ())
        self._fingerprints.save()


def _entry(key: ResourceKey, ref: str | None, **found: Any) -> dict[str, Any]:
    """Return an entry of a lock, its keys in the order in which they are stored."""
    name = {} if key[0] in ("agents", "contexts") else {"name": key[1]}
    text = None if ref is None else str(ref)
    defaults = {"commit": None, "resolved_at": now(), "kind": None, "content_hash": None, "path": None}
    return {**name, "ref": text, **defaults, "mutable": False, "requirements": [], "status": "ok", **found}


def _is_same_resource(entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    fields = ("content_hash", "requirements")
    return before is not None and all(entry[name] == before[name] for name in fields)


def _is_copied_module(key: ResourceKey, entry: Mapping[str, Any]) -> bool:
    return bool(entry["path"]) and key[0] not in ("agents", "contexts")


def _is_unpinned(ref: str | None) -> bool:
    reference = parse_reference(ref) if ref is not None else None
    return isinstance(reference, GitReference) and reference.ref is None


def _check_text(file: Path, ref: str) -> None:
    try:
        file.read_text(encoding="utf-8")
    except ValueError as error:
        raise ResourceError(
            f"Agent ref must be a markdown file: {shown(ref)} (not UTF-8)", code="agent-not-file"
        ) from error


def _code_of(error: AmplifierError) -> str:
    """Return the code of a failure: a reference is wrong, or right and what it leads to cannot be had at the moment."""
    if isinstance(error, RefResolutionError) and error.reason not in ("syntax", "unsafe-path", "subpath-missing"):
        is_elsewhere = isinstance(parse_reference(error.ref), GitReference | UrlReference | ZipReference)
        return UNREACHABLE if is_elsewhere else "bad-ref"
    return str(getattr(error, "code", "bad-ref"))


def _failed(profile_id: ProfileId, failures: Sequence[_Failure]) -> ProfileCompilationError:
    """Return one error for all failures; where they have the same code it has that code as well."""
    codes = {_code_of(each.error) for each in failures}
    text = "".join(f"\n  {each}" for each in failures)
    hints = dict.fromkeys(each.error.hint for each in failures if each.error.hint)
    return ProfileCompilationError(
        f"Profile {profile_id} cannot be compiled:{text}",
        code=codes.pop() if len(codes) == 1 else "compile-failed",
        problems=[each.error.message for each in failures],
        hint="; ".join(hints),
    )


async def remake(
    context: CompileContext, merged: MergedProfile, roots: Roots, lock: ProfileLock, fingerprints: Fingerprints
) -> Build:
    """Make the build that a lock describes, beside the published one; the caller holds the lock of the profile.

    Raises:
        ProfileCompilationError: what is on this machine, or what its sources have now, makes another one.
    """
    _check_same(merged, lock)
    wanted = find_wanted(merged, roots, [key for key, _ in lock.resources()])
    missing = {key: "resource-missing" for key, entry in lock.resources() if entry["status"] == "ok"}
    reasons = tuple(Reason(code, "/".join(key)) for key, code in missing.items())
    if wanted.keys() != dict(lock.resources()).keys():
        raise _refused(merged, lock, "the collection has other agents")
    inspection = Inspection(None, lock, wanted, reasons, stale=missing)
    compilation = Compilation(context, merged, roots, inspection, fingerprints, frozen=True, only=lock.build_id)
    return await compilation.run()


def _check_same(merged: MergedProfile, lock: ProfileLock) -> None:
    made_for, here = (lock.data["python"], lock.data["platform"]), (python_version(), platform_name())
    if made_for != here:
        text = f"it was made for Python {made_for[0]} on {made_for[1]}, and this is Python {here[0]} on {here[1]}"
        raise _refused(merged, lock, text)
    if compute_build_id(merged, lock.resources()) != lock.build_id:
        raise _refused(merged, lock, "the profile, one that it extends or its overlay is different here")


def _refused(merged: MergedProfile, lock: ProfileLock, why: str) -> ProfileCompilationError:
    text = f"build {lock.build_id} of profile {merged.profile_id} cannot be made here: {why}"
    return ProfileCompilationError(text, code="frozen", problems=[why])
