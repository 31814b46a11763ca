"""Git references: from a ref to a commit, from a commit to its tree."""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources.cache_context import (
    UNREACHABLE,
    CacheContext,
    Slots,
    find_subpath,
    key_of,
    not_cached,
)
from amplifier_foundation.sources.reference import GitReference
from amplifier_foundation.sources.resolved import OFFLINE_STALE, UNPINNED, ResolvedRef
from amplifier_foundation.sources.store import now
from amplifier_system.urls import shown

from . import git_remote
from .git_process import GitCloneTimeoutError, GitError
from .git_remote import KnownRef, RefsFile
from .git_trees import GitTrees

_absent: dict[tuple[Path, GitReference], str] = {}
"""The commit in which the remote was last asked in vain for a path; there is no point in asking about it again."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A commit whose tree is in the cache, and how it got there."""

    known: KnownRef
    asked: bool = False
    fetched: bool = False
    stale: bool = False
    sidecar: dict[str, Any] | None = None  # where it was read on the way


class GitSource:
    """Resolves git references with one cache."""

    def __init__(self, context: CacheContext) -> None:
        self._context = context
        self._refs = RefsFile(context.cache_dir)
        self._trees = GitTrees(context.cache_dir, context.limits)
        self._slots = Slots(context.limits.parallel_git)

    async def resolve(self, reference: GitReference, ref: str, *, refresh: bool) -> ResolvedRef:
        """Return the tree of a reference, or what its subpath names in it."""
        self._check_allowed(reference, ref)
        found = await self._find(reference, ref, refresh=refresh)
        absent = (self._context.cache_dir, reference)
        try:
            return self._resolved(reference, ref, found)
        except RefResolutionError as error:
            moved_on = error.reason == "subpath-missing" and found.known.mutable and not (found.asked or found.stale)
            if not moved_on or self._must_stay_offline(reference) or _absent.get(absent) == found.known.commit:
                raise
        found = await self._find(reference, ref, refresh=True)
        try:
            return self._resolved(reference, ref, found)
        except RefResolutionError:
            _absent[absent] = found.known.commit
            raise

    def find_known(self, reference: GitReference) -> KnownRef | None:
        """Return what the cache knows about a reference's ref, without asking the remote."""
        if commit := git_remote.split_commit(reference.ref):
            return KnownRef(commit[0], "commit", "", commit[1])
        return self._refs.find(reference.repository, reference.ref)

    def cached_tree(self, reference: GitReference) -> Path:
        """Return where the tree of a reference is in the cache, or would be."""
        known = self.find_known(reference)
        return self._trees.tree(known.commit if known else "unknown")

    def fetched_at(self, commit: str) -> str | None:
        """Return when a commit's tree came into the cache, None when it is not there."""
        sidecar = self._trees.sidecar(commit)
        return None if sidecar is None else str(sidecar.get("fetched_at", ""))

    async def ask(self, reference: GitReference, ref: str) -> KnownRef | None:
        """Ask the remote, without recording the answer; None when it has no such ref.

        Raises:
            RefResolutionError: it could not be asked.
        """
        self._check_allowed(reference, ref)
        if self._must_stay_offline(reference):
            raise not_cached(ref)
        self._context.tell(ref, "asking")
        for pause_s in (*self._context.limits.retry_delays_s, None):
            try:
                async with self._slots.here():
                    return await git_remote.ask(reference, timeout_s=self._context.limits.ask_timeout_s)
            except GitCloneTimeoutError as error:
                raise RefResolutionError(f"Failed to clone {shown(reference.url)}: {error}", ref, "timeout") from error
            except GitError as error:
                if pause_s is None or error.reason != "network":  # only that may pass by itself
                    message = f"Failed to clone {shown(reference.url)}: {shown(error)}"
                    raise RefResolutionError(message, ref, error.reason) from error
            await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _find(self, reference: GitReference, ref: str, *, refresh: bool) -> _Found:
        known = self.find_known(reference)
        question_due = known is None or (refresh and known.kind != "commit")
        if known is not None and not question_due:
            if (sidecar := self._trees.sidecar(known.commit)) is not None:
                return _Found(known, sidecar=sidecar)
            return await self._fetch(reference, ref, _Found(known))
        if self._must_stay_offline(reference):
            return self._last_known(ref, known)
        async with self._context.locked(f"ref-{key_of(reference.repository, reference.ref)}", ref):
            newest = self.find_known(reference)
            answered = newest is not None and (not refresh or newest != known)
            if newest is not None and answered and self._trees.sidecar(newest.commit) is not None:
                return _Found(newest, asked=True)  # another caller asked and fetched while this one waited
            try:
                return await self._ask_and_fetch(reference, ref)
            except RefResolutionError as error:
                if error.reason not in UNREACHABLE:
                    raise
                with contextlib.suppress(RefResolutionError):
                    return self._last_known(ref, known)
                raise

    async def _ask_and_fetch(self, reference: GitReference, ref: str) -> _Found:
        known = await self.ask(reference, ref)
        if known is None:
            return await self._fetch_abbreviated(reference, ref)
        found = _Found(known, asked=True)
        if self._trees.sidecar(known.commit) is None:
            found = await self._fetch(reference, ref, found)
        else:
            await self._note_rev(reference, ref, known.commit)
        await asyncio.to_thread(self._refs.record, reference.repository, reference.ref, known)
        return found

    async def _fetch(self, reference: GitReference, ref: str, found: _Found) -> _Found:
        commit = found.known.commit
        if self._must_stay_offline(reference):
            raise not_cached(ref)
        async with self._context.locked(f"git-{commit}", ref):
            if self._trees.sidecar(commit) is not None:
                return found  # another process fetched it while this one waited
            self._context.tell(ref, "fetching")
            await self._trees.fetch(
                reference,
                commit,
                slot=self._slots.here(),
                on_bytes=lambda size: self._context.tell(ref, "fetching", size),
            )
        return replace(found, fetched=True)

    async def _fetch_abbreviated(self, reference: GitReference, ref: str) -> _Found:
        for abbreviation, rest in git_remote.abbreviated_commits(reference.ref):
            self._context.tell(ref, "fetching")
            commit = await self._trees.fetch_abbreviated(
                reference,
                abbreviation,
                slot=self._slots.here(),
                lock=lambda commit: self._context.locked(f"git-{commit}", ref),
                on_bytes=lambda size: self._context.tell(ref, "fetching", size),
            )
            if commit is not None:
                known = KnownRef(commit, "commit", now(), rest)
                await asyncio.to_thread(self._refs.record, reference.repository, reference.ref, known)
                return _Found(known, asked=True, fetched=True)
        raise await git_remote.no_such_ref(reference, timeout_s=self._context.limits.ask_timeout_s)

    async def _note_rev(self, reference: GitReference, ref: str, commit: str) -> None:
        if reference.ref is not None:
            async with self._context.locked(f"git-{commit}", ref):
                await asyncio.to_thread(self._trees.add_rev, commit, reference.ref)

    def _last_known(self, ref: str, known: KnownRef | None) -> _Found:
        if known is None or self._trees.sidecar(known.commit) is None:
            raise not_cached(ref)
        return _Found(known, stale=known.mutable)

    def _check_allowed(self, reference: GitReference, ref: str) -> None:
        if reference.transport == "file":
            path = reference.url.partition("://")[2].removeprefix("localhost")
            for reading in {path, unquote(path)}:  # git decodes such a URL
                self._context.check_allowed(Path(reading), ref)

    def _must_stay_offline(self, reference: GitReference) -> bool:
        return reference.transport != "file" and self._context.is_offline()

    def _resolved(self, reference: GitReference, ref: str, found: _Found) -> ResolvedRef:
        known, subpath = found.known, reference.subpath
        if known.rest is not None:
            if subpath is not None:
                message = f"{shown(ref)} names a path twice: {known.rest!r} behind the ref and {subpath!r} after '#'"
                raise RefResolutionError(message, ref, "syntax", hint="keep the one after '#'")
            subpath = known.rest
        rev = reference.ref if known.rest is None else (reference.ref or "").removesuffix(f"/{known.rest}")
        sidecar = found.sidecar or self._trees.sidecar(known.commit) or {}
        root = self._trees.tree(known.commit)
        path = find_subpath(root, subpath, ref, missing=sidecar.get("submodules", ()))
        warnings = ((UNPINNED,) if reference.ref is None else ()) + ((OFFLINE_STALE,) if found.stale else ())
        return ResolvedRef(
            ref=ref,
            kind="git",
            path=path,
            root=root,
            resolved_at=now(),
            url=reference.repository,
            rev=rev,
            commit=known.commit,
            subpath=subpath,
            mutable=known.mutable,
            from_cache=not found.fetched,
            stale=found.stale,
            warnings=warnings,
            known_hash=sidecar.get("content_hash") if subpath is None else None,
            root_hash=sidecar.get("content_hash"),
        )
