"""The resources that a profile names, and from each name the way to its files."""

from __future__ import annotations

import asyncio
import fnmatch
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from amplifier_core.mount_plan import MODULE_SECTIONS, MountPlan, PlanEntry
from amplifier_core.packages import find_code, package_name
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.registry.remote_paths import LOCAL_PATH, leads_here
from amplifier_foundation.sources import (
    FileReference,
    GitReference,
    NameReference,
    ResolvedRef,
    Sources,
    parse_reference,
)
from amplifier_foundation.sources.resolved import hash_content
from amplifier_foundation.sources.store import now
from amplifier_system.urls import shown
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import is_agent_or_context_name
from amplifierd.issues import Issue
from amplifierd.profiles.documents.document import ALL_AGENTS, DeclaredReference, ReferenceBase
from amplifierd.profiles.documents.inheritance import MergedProfile
from amplifierd.settings import SecuritySettings

from .fingerprints import Content, list_content, look
from .installed_modules import InstalledModules, installed_modules
from .lock import NAMED_RESOURCES, ProfileLock, ResourceKey
from .profile_catalogue import Roots

MACHINE = ""
"""The collection of a `ReferenceBase` whose directory is a path of this machine: an overlay's."""

REPLACED = "source-replaced"
"""The code of the warning that a module is not the one that its profile names."""

_MARKDOWN = (".md", ".markdown")
_RELATIVE = ("./", "../")


class ResourceError(ProfileCompilationError):
    """One resource cannot be obtained."""


@dataclass(frozen=True)
class Wanted:
    """A resource as the merged profile names it: `ref` is None for a module that must be installed."""

    key: ResourceKey
    ref: str | None
    base: ReferenceBase | None = None

    @property
    def locked_ref(self) -> str | None:
        """The reference as a lock has it: without credentials."""
        return None if self.ref is None else shown(self.ref)

    @property
    def is_module(self) -> bool:
        return self.key[0] not in NAMED_RESOURCES

    @property
    def is_required(self) -> bool:
        """True if there is no build without it."""
        return self.key[0] not in MODULE_SECTIONS

    @property
    def is_relative(self) -> bool:
        return self.ref is not None and self.ref.startswith(_RELATIVE)

    def __str__(self) -> str:
        return "/".join(self.key)


@dataclass(frozen=True)
class Located:
    """Where a resource is now: its files, and which version of it they are."""

    wanted: Wanted
    kind: str
    content: Content
    resolved_at: str
    commit: str | None = None
    mutable: bool = False
    version: str | None = None
    warnings: tuple[str, ...] = ()


def find_wanted(merged: MergedProfile, roots: Roots, locked: Iterable[ResourceKey] = ()) -> dict[ResourceKey, Wanted]:
    """Return the resources of a profile, in its order.

    Where the files of a collection cannot be obtained, whose agents are wanted all, those among `locked` are.

    Raises:
        ProfileCompilationError: two entries name different sources for one module (`source-conflict`).
    """
    found: dict[ResourceKey, Wanted] = {}
    for section, entry in _module_entries(merged.sections):
        source = entry.get("source") or None
        key = (section, str(entry["module"]))
        known = found.get(key)
        if known is not None and source is not None and known.ref not in (None, source):
            raise ProfileCompilationError(
                f"Module '{key[1]}' has two sources: {shown(known.ref)} and {shown(source)}",
                code="source-conflict",
                hint="instances of one module share one source",
            )
        if known is None or known.ref is None:
            found[key] = Wanted(key, source, getattr(source, "base", None))
    for name, value in (merged.sections.get("agents") or {}).items():
        if name == ALL_AGENTS:
            found |= _all_agents(value, roots, merged.sections["agents"], locked)
        elif isinstance(value, str):
            found[("agents", name)] = Wanted(("agents", name), value, getattr(value, "base", None))
    for name, value in (merged.sections.get("context") or {}).items():
        found[("contexts", name)] = Wanted(("contexts", name), value, getattr(value, "base", None))
    return found


def with_installed(merged: MergedProfile, replaced: Collection[str]) -> MergedProfile:
    """Return a profile in which some modules are the installed ones, whatever source it names; a warning says so."""
    plan = MountPlan(merged.sections)
    found = tell_replaced(plan, replaced)
    if not found:
        return merged
    sections = plan.map(without_source(replaced))
    return replace(merged, sections=sections, issues=(*merged.issues, *found), named=merged.sections)


def tell_replaced(plan: MountPlan, replaced: Collection[str]) -> list[Issue]:
    """Return a warning for each entry of a plan whose source an installed module takes the place of."""
    return [
        Issue(
            REPLACED,
            f"'{entry.module_id}' is the installed module, not {shown(str(entry.source))}, as sources.replace says",
            entry.place,
            severity="warning",
            fix="take it out of sources.replace to use its source",
        )
        for entry in plan.entries()
        if entry.source is not None and entry.module_id in replaced
    ]


def replaced_in(plan: MountPlan, replaced: Collection[str]) -> dict[str, str]:
    """The sources, by module, that installed modules take the place of."""
    entries = (entry for entry in plan.entries() if entry.source is not None and entry.module_id in replaced)
    return {entry.identity: shown(str(entry.source)) for entry in entries}


def without_source(replaced: Collection[str], *, of_identity: bool = False) -> Callable[[PlanEntry], Mapping[str, Any]]:
    """Return what takes the source off the entries of some modules, so that the installed ones are meant.

    With `of_identity`, they are told apart by their instances, too.
    """

    def taken_off(entry: PlanEntry) -> Mapping[str, Any]:
        if (entry.identity if of_identity else entry.module_id) not in replaced:
            return entry.spec
        return {key: value for key, value in entry.spec.items() if key != "source"}

    return taken_off


def collections_of(merged: MergedProfile) -> set[str]:
    """Return the collections whose files a profile refers to by relative references."""
    references = [entry.get("source") for _, entry in _module_entries(merged.sections)]
    for section in ("agents", "context"):
        references += (merged.sections.get(section) or {}).values()
    return {
        reference.base.collection
        for reference in references
        if isinstance(reference, DeclaredReference)
        and (reference.startswith(_RELATIVE) or reference == "all")
        and reference.base.collection != MACHINE
    }


class ResourceLocator:
    """Finds the files of resources.

    `security` says which references are allowed, `is_remote` whether a collection comes from elsewhere: what it has
    may not name paths of this machine; nor repositories and servers of it, unless it `is_near`: it came from one.
    """

    def __init__(
        self,
        sources: Sources,
        security: SecuritySettings,
        *,
        is_remote: Callable[[str], bool],
        is_near: Callable[[str], bool] = lambda collection: False,
    ) -> None:
        self._sources, self._security, self._is_remote, self._is_near = sources, security, is_remote, is_near
        self._compared: dict[Path, str] = {}

    async def locate(
        self, wanted: Wanted, roots: Roots, *, refresh: bool = False, commit: str | None = None
    ) -> Located:
        """Find a resource's files; what is not in the cache is fetched. Only names and sizes are read.

        `refresh` asks remotes about what may have moved. `commit` is the one that a git reference must mean.

        Raises:
            RefResolutionError: the reference leads nowhere, or the cache has something else than what was fetched.
            ProfileCompilationError: it leads to something else than a resource of this kind.
        """
        resolved = await self.resolve(wanted, roots, refresh=refresh, commit=commit)
        if resolved is not None and resolved.from_cache and resolved.root_hash is not None:
            await asyncio.to_thread(self._check_cached, resolved)
        return await asyncio.to_thread(find_files, wanted, resolved)

    async def resolve(
        self, wanted: Wanted, roots: Roots, *, refresh: bool = False, commit: str | None = None
    ) -> ResolvedRef | None:
        """Resolve the reference of a resource; None for a module that is installed.

        Raises:
            RefResolutionError: it leads nowhere.
            ProfileCompilationError: the settings do not allow it.
        """
        if _find_kind(wanted, roots) == "installed":
            return None
        self._check_allowed(wanted)
        self._check_local(wanted)
        resolved = await self._resolve(wanted, roots, refresh=refresh, commit=commit)
        self._check_pinned(wanted, resolved.kind, mutable=resolved.mutable)
        return resolved

    def _check_cached(self, resolved: ResolvedRef) -> None:
        """Compare a tree of the cache with what was fetched; one that was compared is read again when it changes."""
        seen = look(resolved.root)
        if self._compared.get(resolved.root) == seen:
            return
        if hash_content(resolved.root) != resolved.root_hash:
            raise RefResolutionError(
                f"the cached files of {shown(resolved.ref)} are not those that were locked when they were fetched "
                f"({resolved.root})",
                resolved.ref,
                "integrity",
                hint="delete that directory and the .json file beside it, and they are fetched again",
            )
        self._compared[resolved.root] = seen

    def check_locked(self, lock: ProfileLock) -> None:
        """Refuse a build that was made elsewhere from sources that the settings here do not allow.

        Raises:
            ProfileCompilationError: with the first of them.
        """
        for key, entry in lock.resources():
            if entry["ref"] is None or entry["kind"] == "installed":
                continue
            wanted = Wanted(key, entry["ref"])
            self._check_allowed(wanted)
            self._check_pinned(wanted, entry["kind"], mutable=entry["mutable"])

    def _check_pinned(self, wanted: Wanted, kind: str, *, mutable: bool) -> None:
        if self._security.require_pinned and mutable and kind in ("git", "fsspec"):
            raise ResourceError(
                f"source-not-pinned: {shown(wanted.ref)} can move, and security.require_pinned forbids that",
                code="source-not-pinned",
                hint="name a tag or a commit",
            )

    def _check_allowed(self, wanted: Wanted) -> None:
        patterns = self._security.allowed_sources
        if wanted.is_relative or any(fnmatch.fnmatchcase(str(wanted.ref), pattern) for pattern in patterns):
            return
        raise ResourceError(
            f"source-not-allowed: {shown(wanted.ref)} matches none of security.allowed_sources",
            code="source-not-allowed",
        )

    def _check_local(self, wanted: Wanted) -> None:
        if wanted.is_relative or wanted.base is None or not self._is_remote(wanted.base.collection):
            return
        reference = parse_reference(str(wanted.ref))
        is_server = isinstance(reference, GitReference) or str(reference).startswith("http")
        if leads_here(reference) and not (is_server and self._is_near(wanted.base.collection)):
            hint = "keep what it names in the collection, and write ./path"
            raise ResourceError(f"{LOCAL_PATH}: {wanted.ref}", code="bad-ref", hint=hint)

    async def _resolve(self, wanted: Wanted, roots: Roots, *, refresh: bool, commit: str | None) -> ResolvedRef:
        ref = str(wanted.ref)
        if wanted.is_relative:
            return await self._resolve_relative(wanted, ref, roots)
        reference = parse_reference(ref)
        if commit is None or not isinstance(reference, GitReference) or reference.ref == commit:
            return await self._sources.resolve(ref, refresh=refresh)
        if "/" in (reference.ref or ""):  # a path may be written behind the ref
            known = await self._sources.resolve(ref)
            if known.commit == commit:
                return known
            reference = GitReference(reference.url, commit, known.subpath)
        return await self._sources.resolve(GitReference(reference.url, commit, reference.subpath))

    async def _resolve_relative(self, wanted: Wanted, ref: str, roots: Roots) -> ResolvedRef:
        """Resolve a reference inside its collection: it counts as a part of what the collection is."""
        base = wanted.base
        if base is None or (base.collection != MACHINE and base.collection not in roots):
            raise RefResolutionError(f"{ref} counts from no file", ref, "not-found", hint="write an absolute reference")
        if base.collection == MACHINE:
            return await self._sources.resolve(ref, base_dir=Path(base.directory))
        root = roots[base.collection]
        resolved = await self._sources.resolve(ref, base_dir=root.path / base.directory)
        if not _is_inside(resolved.path, root.boundary):
            message = f"{ref} leads out of the collection {base.collection!r}"
            raise RefResolutionError(message, ref, "unsafe-path", hint="keep what it names inside the collection")
        if root.commit is None:
            return replace(resolved, root=root.boundary)
        return replace(resolved, root=root.boundary, kind="git", commit=root.commit, mutable=False)


def find_files(wanted: Wanted, resolved: ResolvedRef | None, installed: InstalledModules | None = None) -> Located:
    """List the files of a resource that was resolved; blocks while it looks.

    `installed` is for a caller that looks for several, so that they need not be looked up again.

    Raises:
        RefResolutionError: a link in it leads out of it.
        ProfileCompilationError: it is something else than a resource of this kind, or is not installed.
    """
    if resolved is None:
        return _locate_installed(wanted, installed or installed_modules())
    return Located(
        wanted=wanted,
        kind="local" if resolved.kind == "installed" else resolved.kind,  # a file of a package, which is copied
        content=_list(wanted, resolved),
        resolved_at=resolved.resolved_at,
        commit=resolved.commit,
        mutable=resolved.mutable,
        warnings=tuple(f"{warning}: {shown(wanted.ref)}" for warning in resolved.warnings),
    )


def is_near(wanted: Wanted, roots: Roots) -> bool:
    """True if a resource is used from this machine's own files, or from what is installed."""
    return _find_kind(wanted, roots) in ("local", "installed")


def current_commit(wanted: Wanted, roots: Roots) -> str | None:
    """Return the commit of the git collection that a relative reference belongs to."""
    root = roots.get(wanted.base.collection) if wanted.is_relative and wanted.base else None
    return root.commit if root is not None else None


def _module_entries(sections: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((entry.section, entry.spec) for entry in MountPlan(sections).entries())


def _all_agents(
    marker: DeclaredReference, roots: Roots, declared: Iterable[str], locked: Iterable[ResourceKey]
) -> dict[ResourceKey, Wanted]:
    """Return every agent in a collection's `agents/` that the profile does not name itself."""
    root = roots.get(marker.base.collection)
    base = ReferenceBase(marker.base.collection, PurePosixPath())
    if root is None:
        names = [name for section, name in locked if section == "agents"]
    else:
        names = sorted(file.stem for file in root.path.glob("agents/*.md"))
    return {
        ("agents", name): Wanted(("agents", name), f"./agents/{name}.md", base)
        for name in names
        if is_agent_or_context_name(name) and name not in declared
    }


def _find_kind(wanted: Wanted, roots: Roots) -> str:
    if wanted.ref is None:
        return "installed"
    match parse_reference(wanted.ref):
        case NameReference():
            return "installed" if wanted.is_module else "local"
        case FileReference():
            return "git" if current_commit(wanted, roots) else "local"
    return "remote"


def _locate_installed(wanted: Wanted, modules: InstalledModules) -> Located:
    module_id = wanted.key[1]
    installed = modules.find(module_id, wanted.ref)
    if installed is None:
        source = f"its source {wanted.ref!r} is not an installed package" if wanted.ref else "it has no source"
        near = modules.nearest(module_id)
        meant = f"did you mean {near}? Else " if near else ""
        raise ResourceError(
            f"module-not-installed: module '{module_id}' is not installed, and {source}",
            code="module-not-installed",
            hint=f"{meant}give it a source, for example git+https://host/org/repo@v1; a path begins with ./",
        )
    part = "" if installed.path.is_file() else installed.path.name
    content = list_content({part: installed.path}, boundary=installed.path.parent, ref=module_id)
    return Located(wanted, "installed", content, now(), version=installed.version)


def _is_inside(path: Path, boundary: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(boundary))


def _list(wanted: Wanted, resolved: ResolvedRef) -> Content:
    section, name = wanted.key
    path, ref = resolved.path, shown(wanted.ref)
    if wanted.is_module:
        parts = _find_package(path, name, resolved.root)
        if parts is None:
            raise ResourceError(
                f"module-package-missing: no package '{package_name(name)}' in {ref}",
                code="module-package-missing",
                hint="the source, or its pyproject.toml, must name the package of this module",
            )
        return list_content(parts, boundary=resolved.root, ref=ref)
    if section == "agents":
        if not path.is_file() or path.suffix.lower() not in _MARKDOWN:
            raise ResourceError(f"Agent ref must be a markdown file: {ref}", code="agent-not-file")
        return list_content({"": path}, boundary=resolved.root, ref=ref)
    if not path.is_dir():
        raise ResourceError(f"Context ref must be a directory: {ref}", code="context-not-directory")
    return list_content({"": path}, boundary=resolved.root, ref=ref)


def _find_package(path: Path, module_id: str, root: Path) -> dict[str, Path] | None:
    """Return the parts of a module's directory: its package, and the `pyproject.toml` beside it."""
    found = find_code(path, module_id)
    return None if found is None else {found.name: found, **_find_project(path, found, root)}


def _find_project(path: Path, package: Path, root: Path) -> dict[str, Path]:
    """Return the `pyproject.toml` that tells what a package requires: in the source, else just above the package."""
    folders = [path, package.parent, *([package.parent.parent] if package.parent.name == "src" else [])]
    inside = [folder for folder in folders if folder.is_relative_to(root)]
    found = next((folder / "pyproject.toml" for folder in inside if (folder / "pyproject.toml").is_file()), None)
    return {"pyproject.toml": found} if found else {}
