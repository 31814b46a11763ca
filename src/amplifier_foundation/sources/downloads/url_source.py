"""References to downloads: files by http(s), files and directories by fsspec, archives."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.resolution import split_uri
from amplifier_foundation.sources.cache_context import (
    UNREACHABLE,
    CacheContext,
    Slots,
    find_subpath,
    key_of,
    not_cached,
)
from amplifier_foundation.sources.local import find_local
from amplifier_foundation.sources.reference import FileReference, UrlReference, ZipReference
from amplifier_foundation.sources.resolved import OFFLINE_STALE, ResolvedRef, hash_content
from amplifier_foundation.sources.store import now, remove
from amplifier_system.threads import Stop, in_thread
from amplifier_system.urls import shown

from .archive import Extraction
from .backend import LOCAL_BACKENDS, WITHOUT_NETWORK, BackendDownload
from .url_cache import Entry, Fetch, Fetched, UrlCache, name_of, normalise_url

_HTTP = ("http", "https")


class UrlSource:
    """Resolves downloads and archives with one cache."""

    def __init__(self, context: CacheContext) -> None:
        self._context = context
        self._cache = UrlCache(context.cache_dir)
        self._slots = Slots(context.limits.parallel_downloads)

    async def resolve_url(self, reference: UrlReference, ref: str, *, refresh: bool) -> ResolvedRef:
        """Return a downloaded file or directory, or what the subpath names in it."""
        scheme = reference.scheme
        if scheme in LOCAL_BACKENDS and self._context.allowed_roots is not None:
            message = f"{scheme}:// reads files of this machine, which is restricted here; write a plain path"
            raise RefResolutionError(message, ref, "unsafe-path")
        url, name = normalise_url(reference.url), name_of(reference.url)

        def fetch() -> Fetch:
            if scheme in _HTTP:
                return self._download(reference.url, ref, self._context.limits.file_bytes)
            return BackendDownload(reference.url, ref, self._context.limits, on_bytes=self._reporter(ref))

        online = scheme not in WITHOUT_NETWORK
        resolved = await self._resolve(url, name, ref, fetch, refresh=refresh, needs_network=online)
        return self._with_subpath(resolved, reference.subpath)

    async def resolve_zip(
        self, reference: ZipReference, ref: str, *, base_dir: Path | None, refresh: bool
    ) -> ResolvedRef:
        """Return the extracted archive, or what the subpath names in it."""
        parts = split_uri(reference.url)
        local = self._find_archive(parts.path, ref, base_dir) if parts.scheme == "file" else None
        url = f"zip+{local.as_uri()}" if local else normalise_url(f"zip+{reference.url}")
        name = PurePosixPath(name_of(reference.url)).stem
        resolved = await self._resolve(
            url, name, ref, lambda: self._extract(reference, ref, local), refresh=refresh, needs_network=local is None
        )
        return self._with_subpath(resolved, reference.subpath)

    async def _resolve(
        self, url: str, name: str, ref: str, fetch: Callable[[], Fetch], *, refresh: bool, needs_network: bool
    ) -> ResolvedRef:
        entry = self._cache.find(url, name)
        if entry is not None and not refresh:
            return _resolved(url, ref, entry, from_cache=True)
        if needs_network and self._context.is_offline():
            if entry is None:
                raise not_cached(ref)
            return _resolved(url, ref, entry, from_cache=True, stale=True)
        async with self._context.locked(f"fsspec-{key_of(url)}", ref), self._slots.here():
            newest = self._cache.find(url, name)
            if newest is not None and (not refresh or (entry is None and newest.meta.get("fetched_at"))):
                return _resolved(url, ref, newest, from_cache=True)  # another process fetched it meanwhile
            self._context.tell(ref, "fetching")
            try:
                entry, is_new = await self._cache.fill(url, name, fetch())
            except RefResolutionError as error:
                if entry is None or not needs_network or error.reason not in UNREACHABLE:
                    raise
                return _resolved(url, ref, entry, from_cache=True, stale=True)
            return _resolved(url, ref, entry, from_cache=not is_new)

    def _download(self, url: str, ref: str, most_bytes: int) -> Fetch:
        from .download import Download  # brings the http client, which most runs never need

        return Download(url, ref, self._context.limits, most_bytes=most_bytes, on_bytes=self._reporter(ref))

    def _extract(self, reference: ZipReference, ref: str, local: Path | None) -> Fetch:
        limits = self._context.limits

        async def fetch(target: Path, entry: Entry | None) -> Fetched | None:
            archive = local or target.with_name(f"{target.name}.archive")
            fetched: Fetched | None = None
            try:
                if local is None:
                    fetched = await self._download(reference.url, ref, limits.tree_bytes)(archive, entry)
                    if fetched is None:
                        return None

                def extract(stop: Stop) -> Fetched:
                    if not archive.is_file():
                        message = f"Zip file not found: {archive} does not exist"
                        raise RefResolutionError(message, ref, "not-found")
                    size = Extraction(archive, ref, limits, stop).run(target)
                    return Fetched(hash_content(target).removeprefix("sha256:"), size)

                extracted = await in_thread(extract)
            finally:
                if local is None:
                    remove(archive)
            if fetched is None:
                return extracted
            return replace(extracted, etag=fetched.etag, last_modified=fetched.last_modified)

        return fetch

    def _find_archive(self, path: str, ref: str, base_dir: Path | None) -> Path:
        local = find_local(FileReference(path), base_dir).path
        self._context.check_allowed(local, ref)
        return local

    def _with_subpath(self, resolved: ResolvedRef, subpath: str | None) -> ResolvedRef:
        if subpath is None:
            return resolved
        path = find_subpath(resolved.root, subpath, resolved.ref)
        return replace(resolved, path=path, subpath=subpath, known_hash=None)

    def _reporter(self, ref: str) -> Callable[[int, int | None], None]:
        """Return what reports bytes; it may be called from any thread."""
        loop = asyncio.get_running_loop()

        def report(size: int, total: int | None) -> None:
            loop.call_soon_threadsafe(self._context.tell, ref, "fetching", size, total)

        return report


def _resolved(url: str, ref: str, entry: Entry, *, from_cache: bool, stale: bool = False) -> ResolvedRef:
    return ResolvedRef(
        ref=ref,
        kind="fsspec",
        path=entry.path,
        root=entry.path,
        resolved_at=now(),
        url=shown(url),
        mutable=True,
        from_cache=from_cache,
        stale=stale,
        warnings=(OFFLINE_STALE,) if stale else (),
        known_hash=entry.content_hash,
    )
