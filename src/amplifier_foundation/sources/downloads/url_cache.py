"""`fsspec/<hash>/<name>`: one download, as a file or a directory, with `.meta.json` beside it.

An entry without `.meta.json` is what a crash left and counts as nothing: it is written last, and removed before the
content is replaced.
"""

import errno
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from amplifier_foundation.paths.resolution import split_uri
from amplifier_foundation.sources.store import discard, make_directory, now, read_json, remove, unique, write_json
from amplifier_system.threads import in_thread
from amplifier_system.urls import shown

logger = logging.getLogger(__name__)

META = ".meta.json"

_TEMPORARY = ".tmp-"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """A download in the cache."""

    path: Path
    meta: dict[str, Any]

    @property
    def content_hash(self) -> str | None:
        digest = self.meta.get("sha256")
        return f"sha256:{digest}" if isinstance(digest, str) and digest else None


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch put at the place it was given; the tags are what a later, conditional request needs."""

    sha256: str
    size: int
    etag: str | None = None
    last_modified: str | None = None


# Puts content at a path and says what it is; None: what the given entry has is still right.
Fetch = Callable[[Path, Entry | None], Awaitable[Fetched | None]]


class UrlCache:
    """The downloads of one cache."""

    def __init__(self, cache_dir: Path) -> None:
        self._directory = cache_dir / "fsspec"

    def find(self, url: str, name: str) -> Entry | None:
        """Return the complete entry of a normalised URL. Prune goes by when its `.meta.json` was last read."""
        directory, meta = self._place(url)
        path = directory / name
        return Entry(path, meta) if meta is not None and path.exists() else None

    async def fill(self, url: str, name: str, fetch: Fetch) -> tuple[Entry, bool]:
        """Fetch an entry, or check that it is current, and return it and whether it is new; the caller holds its lock.

        What there was stays as it is if `fetch` raises.
        """
        directory, _ = self._place(url)
        entry = self.find(url, name)
        make_directory(directory)
        await in_thread(lambda stop: _remove_leftovers(directory))
        temporary = directory / f"{_TEMPORARY}{unique()}-{name}"
        try:
            fetched = await fetch(temporary, entry)
            return await in_thread(lambda stop: self._keep(url, name, temporary, fetched, entry))
        finally:
            await in_thread(lambda stop: remove(temporary))
            await in_thread(lambda stop: _remove_if_empty(directory))

    def _keep(
        self, url: str, name: str, temporary: Path, fetched: Fetched | None, entry: Entry | None
    ) -> tuple[Entry, bool]:
        directory, _ = self._place(url)
        path = directory / name
        if entry is not None and fetched is None:
            return entry, False
        if entry is not None and fetched is not None and fetched.sha256 == entry.meta.get("sha256"):
            meta = {**entry.meta, "etag": fetched.etag, "last_modified": fetched.last_modified}
            write_json(directory / META, meta)
            return Entry(path, meta), False
        if fetched is None:
            raise RuntimeError(f"nothing is known of {shown(url)}, and nothing was fetched")
        meta = {
            "url": shown(url),
            **({"key": _digest(url)} if shown(url) != url else {}),
            "sha256": fetched.sha256,
            "etag": fetched.etag,
            "last_modified": fetched.last_modified,
            "fetched_at": now(),
            "bytes": fetched.size,
            "is_dir": temporary.is_dir(),
        }
        (directory / META).unlink(missing_ok=True)
        _move(temporary, path)
        write_json(directory / META, meta)
        return Entry(path, meta), True

    def _place(self, url: str) -> tuple[Path, dict[str, Any] | None]:
        """Return the directory of a URL; when another URL has the same short key, the one with the long key."""
        digest = _digest(url)
        for key in (digest[:16], digest):
            meta = read_json(self._directory / key / META)
            if meta is None or meta.get("key", _digest(str(meta.get("url")))) == digest:
                return self._directory / key, meta
        return self._directory / digest, None


def _digest(url: str) -> str:
    """Return what an entry is known by: its URL may have a secret in it, which is not stored."""
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()


def normalise_url(url: str) -> str:
    """Return the form of a URL under which its content is stored: equal for URLs that differ only in spelling."""
    parts = split_uri(url)
    scheme = parts.scheme.removeprefix("zip+")
    host = parts.host.rpartition("@")[2].lower().removesuffix(_DEFAULT_PORTS.get(scheme, "\0"))
    if scheme not in _DEFAULT_PORTS:
        host = parts.host.rpartition("@")[2]  # a bucket or key of some backend, where case may matter
    query = urlencode(sorted(parse_qsl(parts.query, keep_blank_values=True)), quote_via=quote) if parts.query else ""
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}{f'?{query}' if query else ''}"


def name_of(url: str) -> str:
    """Return the name under which a URL's content is stored: the last part of its path."""
    name = split_uri(url).path.rstrip("/").rpartition("/")[2].replace("\0", "")
    if name in ("", ".", "..") or name.startswith((META, _TEMPORARY)):
        return "content"
    path = PurePosixPath(name)
    longest = _LONGEST_NAME - len(path.suffix.encode())
    return (
        name
        if len(name.encode()) <= _LONGEST_NAME
        else path.stem.encode()[:longest].decode("utf-8", "ignore") + path.suffix
    )


def _move(temporary: Path, path: Path) -> None:
    """Put new content into place; a file is replaced, a directory taken away first."""
    if path.is_dir() or (path.exists() and temporary.is_dir()):
        discard(path)
    try:
        temporary.replace(path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        logger.debug("another process put %s into place first", path)


def _remove_leftovers(directory: Path) -> None:
    """Remove what a crash left: no one else works on the entry while its lock is held."""
    for leftover in directory.glob(f"{_TEMPORARY}*"):
        remove(leftover)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        logger.debug("%s is in use", directory)
