"""Downloads by an installed fsspec backend: a file, or a directory with all that is below it."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from amplifier_foundation.exceptions import RefResolutionError, RefResolutionReason
from amplifier_foundation.sources.resolved import Limits, hash_content, is_bytecode
from amplifier_foundation.sources.store import make_directory
from amplifier_system.threads import Stop, Stopped, in_thread
from amplifier_system.urls import shown

from .url_cache import Entry, Fetched

# Backends that read files of this machine, directly or through another one.
LOCAL_BACKENDS = frozenset(
    [
        "local",
        "asynclocal",
        "dir",
        "zip",
        "tar",
        "libarchive",
        "reference",
        "git",
        "generic",
        "cached",
        "blockcache",
        "filecache",
        "simplecache",
        "async_wrapper",
    ]
)
WITHOUT_NETWORK = LOCAL_BACKENDS | {"memory"}

_CHUNK = 1024 * 1024


class BackendDownload:
    """One download of one reference."""

    def __init__(self, url: str, ref: str, limits: Limits, *, on_bytes: Callable[[int, int | None], None]) -> None:
        self._url = url
        self._ref = ref
        self._limits = limits
        self._on_bytes = on_bytes
        self._backend = find_backend(url, ref)

    async def __call__(self, target: Path, entry: Entry | None) -> Fetched | None:
        """Fetch the URL to `target`; None when the backend says that `entry` is current.

        Raises:
            RefResolutionError: with the reason.
        """
        return await in_thread(lambda stop: self._fetch(target, entry, stop))

    def _fetch(self, target: Path, entry: Entry | None, stop: Stop) -> Fetched | None:
        with reported_failures("download", self._url, self._ref):
            filesystem, path = open_backend(self._backend, self._url)
            info = filesystem.info(path)
            if info["type"] == "directory":
                return self._fetch_directory(filesystem, path, target, stop)
            tag = str(filesystem.ukey(path))
            if entry is not None and entry.meta.get("etag") == tag:
                return None
            with target.open("xb") as file:
                digest = hashlib.sha256()
                size = 0
                for chunk in self._read(filesystem, path, stop):
                    size += len(chunk)
                    self._check(size, self._limits.file_bytes)
                    digest.update(chunk)
                    file.write(chunk)
                    self._on_bytes(size, info.get("size"))
                _sync(file)
            return Fetched(digest.hexdigest(), size, etag=tag)

    def _fetch_directory(self, filesystem: Any, path: str, target: Path, stop: Stop) -> Fetched:
        found: dict[str, dict[str, Any]] = filesystem.find(path, detail=True)
        total = sum(info.get("size") or 0 for info in found.values())
        self._check(total, self._limits.tree_bytes)
        if len(found) > self._limits.tree_entries:
            raise self._failure(f"it has more than {self._limits.tree_entries:,} files", "too-large")
        target.mkdir(mode=0o700)
        size = 0
        for name in sorted(found):
            relative = PurePosixPath(name.removeprefix(path.rstrip("/")).lstrip("/"))
            if relative.is_absolute() or ".." in relative.parts or not relative.parts:
                raise self._failure(f"{name!r} is not inside it", "unsafe-path")
            if is_bytecode(str(relative)):
                continue
            destination = target / relative
            make_directory(destination.parent)
            with destination.open("xb") as file:
                for chunk in self._read(filesystem, name, stop):
                    size += len(chunk)
                    self._check(size, self._limits.tree_bytes)
                    file.write(chunk)
                    self._on_bytes(size, total)
        return Fetched(hash_content(target).removeprefix("sha256:"), size)

    def _read(self, filesystem: Any, path: str, stop: Stop) -> Iterator[bytes]:
        with filesystem.open(path, "rb") as source:
            while chunk := source.read(_CHUNK):
                stop.check()
                yield chunk

    def _check(self, size: int, most: int) -> None:
        if size > most:
            raise self._failure(f"it is larger than {most:,} bytes", "too-large")

    def _failure(self, problem: str, reason: RefResolutionReason) -> RefResolutionError:
        return RefResolutionError(f"Failed to download {shown(self._url)}: {problem}", self._ref, reason)


def find_backend(url: str, ref: str) -> Any:
    """Return the class of the backend for a URL.

    Raises:
        RefResolutionError: none is installed.
    """
    import fsspec  # type: ignore[import-untyped]  # large and without types; loaded only for its own schemes

    scheme = url.partition("://")[0]
    try:
        return fsspec.get_filesystem_class(scheme)
    except ValueError as error:
        message = f"No handler for URI: {shown(url)}: nothing is known about the scheme {scheme!r}"
        raise RefResolutionError(message, ref, "backend-missing") from error
    except ImportError as error:
        message = f"No handler for URI: {shown(url)}: the backend for {scheme!r} is not installed"
        raise RefResolutionError(message, ref, "backend-missing", hint=str(error)) from error


def open_backend(backend: Any, url: str) -> tuple[Any, str]:
    """Return the file system that a URL is in, and its path there."""
    return backend(**backend._get_kwargs_from_urls(url)), backend._strip_protocol(url)


@contextmanager
def reported_failures(doing: str, url: str, ref: str) -> Iterator[None]:
    """Raise whatever a backend raises inside of the block as a `RefResolutionError` that says what was being done."""

    def failure(problem: str, reason: RefResolutionReason) -> RefResolutionError:
        return RefResolutionError(f"Failed to {doing} {shown(url)}: {problem}", ref, reason)

    try:
        yield
    except (RefResolutionError, Stopped):
        raise
    except FileNotFoundError as error:
        raise failure(f"{error or 'it'} does not exist", "not-found") from error
    except PermissionError as error:
        raise failure(str(error), "auth") from error
    except TimeoutError as error:
        raise failure(str(error) or "no answer in time", "timeout") from error
    except ConnectionError as error:
        raise failure(str(error) or "no connection", "offline") from error
    except Exception as error:  # a backend raises whatever its library raises
        raise failure(f"{type(error).__name__}: {error}", "network") from error


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
