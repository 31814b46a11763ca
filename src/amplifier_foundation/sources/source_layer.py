"""The source layer: a reference goes in, a path of this machine comes out."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.home import get_amplifier_home
from amplifier_foundation.sources.downloads.url_source import UrlSource
from amplifier_foundation.sources.repositories.git_source import GitSource
from amplifier_system.urls import shown

from .cache_context import CacheContext, fetch_hint
from .local import FindRoot, LocalSource, resolve_name
from .protocol import SourceStatus
from .reference import (
    FileReference,
    GitReference,
    NameReference,
    Reference,
    UrlReference,
    ZipReference,
    parse_reference,
)
from .resolved import Limits, Progress, ResolvedRef


class Sources:
    """Resolves references with one cache, which several of these, in several processes, may share.

    `offline=True` forbids the network, None lets `AMPLIFIERD_OFFLINE` decide at every call. With `allowed_roots` local
    paths, local repositories and local archives must lie inside one of them. `progress` is called with every step.
    A reference that the cache can answer costs a few looks at files: no child process, no network, nothing written.
    """

    def __init__(
        self,
        cache_dir: Path | None = None,
        *,
        offline: bool | None = None,
        allowed_roots: Sequence[Path] | None = None,
        progress: Progress | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.cache_dir = (cache_dir or get_amplifier_home() / "cache").expanduser().absolute()
        roots = None if allowed_roots is None else tuple(root.expanduser().resolve() for root in allowed_roots)
        self._context = CacheContext(self.cache_dir, limits or Limits(), offline, roots, progress)
        self._git = GitSource(self._context)
        self._urls = UrlSource(self._context)
        self._local = LocalSource(self._context)

    @property
    def real_cache_dir(self) -> Path:
        """The cache directory without links."""
        return self._context.real_cache_dir

    async def resolve(
        self,
        ref: str | Reference,
        *,
        base_dir: Path | None = None,
        refresh: bool = False,
        find_root: FindRoot | None = None,
    ) -> ResolvedRef:
        """Return where the content of a reference is.

        Relative paths count from `base_dir`, the directory of the file that holds the reference. `refresh` asks remotes
        again about what may have changed. `find_root` chooses the root of a path of this machine.

        Raises:
            RefResolutionError: with `ref` as written, but for credentials, and a `reason`.
        """
        written = str(ref)
        reference = parse_reference(ref) if isinstance(ref, str) else ref
        try:
            resolved = await self._resolve(reference, written, base_dir, refresh, find_root)
        except RefResolutionError as error:
            self._context.tell(written, "failed", detail=error.message)
            if error.reason == "offline" and not error.hint:
                raise RefResolutionError(error.message, written, "offline", hint=fetch_hint(written)) from error
            error.ref = shown(written)
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            message = f"the cache {self.cache_dir} cannot be used: {error}"
            self._context.tell(written, "failed", detail=message)
            raise RefResolutionError(message, written, "too-large" if full else "not-found") from error
        self._context.tell(written, "ready")
        return resolved

    def cached_tree(self, reference: GitReference) -> Path:
        """Return where the tree of a git reference is in the cache, or would be; nothing is fetched."""
        return self._git.cached_tree(reference)

    async def get_status(self, ref: str | Reference) -> SourceStatus:
        """Say what the cache and the remote have of a git reference; nothing is recorded or fetched."""
        reference = parse_reference(ref) if isinstance(ref, str) else ref
        if isinstance(reference, GitReference):
            return await get_git_status(self._git, reference, str(ref))
        return SourceStatus(source_uri=str(ref), is_cached=True)

    async def _resolve(
        self,
        reference: Reference,
        written: str,
        base_dir: Path | None,
        refresh: bool,
        find_root: FindRoot | None,
    ) -> ResolvedRef:
        match reference:
            case GitReference():
                return await self._git.resolve(reference, written, refresh=refresh)
            case UrlReference():
                return await self._urls.resolve_url(reference, written, refresh=refresh)
            case ZipReference():
                return await self._urls.resolve_zip(reference, written, base_dir=base_dir, refresh=refresh)
            case FileReference():
                return await self._local.resolve(reference, written, base_dir=base_dir, find_root=find_root)
            case NameReference():
                return resolve_name(reference, written, base_dir=base_dir)


async def resolve(ref: str | Reference, *, base_dir: Path | None = None, refresh: bool = False) -> ResolvedRef:
    """Resolve a reference with the cache of the default home."""
    return await Sources().resolve(ref, base_dir=base_dir, refresh=refresh)


_SHORT = 8


async def get_git_status(git: GitSource, reference: GitReference, ref: str) -> SourceStatus:
    """Compare the commit that the cache has of a reference with the one its remote has."""
    known = git.find_known(reference)
    commit = known.commit if known else None
    fetched_at = git.fetched_at(commit) if commit else None
    name = reference.ref or "main"
    status = SourceStatus(
        source_uri=shown(str(replace(reference, subpath=None))),
        is_cached=fetched_at is not None,
        cached_at=_time(fetched_at),
        cached_ref=name,
        cached_commit=commit if fetched_at is not None else None,
        remote_ref=name,
    )
    if status.is_pinned:
        status.has_update = False
        status.summary = f"Pinned to {name[:_SHORT] if len(name) == 40 else name}"
        return status
    try:
        remote = await git.ask(reference, ref)
        problem = "" if remote else "the repository has no such ref"
    except RefResolutionError as error:
        remote, problem = None, error.message
    if remote is None:
        status.error = f"Could not find ref {name!r} of {shown(reference.url)}: {problem}"
        status.summary = f"Error: {status.error}"
        return status
    status.remote_commit = remote.commit
    status.has_update = remote.commit != status.cached_commit
    status.summary = _summary(status, remote.commit[:_SHORT])
    return status


def _summary(status: SourceStatus, remote: str) -> str:
    if status.cached_commit is None:
        return f"Not cached (remote: {remote})"
    if not status.has_update:
        return f"Up to date ({remote})"
    return f"Update available ({status.cached_commit[:_SHORT]} → {remote})"


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
