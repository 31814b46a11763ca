"""A directory somewhere else, by its address: files are fetched from it by name, and written into it whole."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources.downloads.backend import (
    WITHOUT_NETWORK,
    BackendDownload,
    find_backend,
    open_backend,
    reported_failures,
)
from amplifier_foundation.sources.downloads.download import Download
from amplifier_foundation.sources.downloads.url_cache import Fetched
from amplifier_system.threads import Stop, in_thread
from amplifier_system.urls import shown

from .resolved import Limits
from .store import unique

_HTTP = ("http", "https")
_NEAR = WITHOUT_NETWORK | {"file"}

Write = Callable[[IO[bytes], Stop], None]
"""Writes a file's content; it looks at the stop between its steps."""


class RemoteDirectory:
    """What `http(s)://…` names, which is only read, or `<scheme>://…` of any installed fsspec backend, `file` too.

    `most_bytes` is the size of the largest file that is fetched.
    """

    def __init__(self, url: str, *, offline: bool, most_bytes: int) -> None:
        self._url, self._offline = url.rstrip("/"), offline
        self._limits = replace(Limits(), file_bytes=most_bytes)
        self._scheme = url.partition("://")[0]

    def __str__(self) -> str:
        return shown(self._url)

    @property
    def is_read_only(self) -> bool:
        return self._scheme in _HTTP

    async def fetch(self, name: str, target: Path) -> Fetched:
        """Fetch the file of a name to `target`, which is new.

        Raises:
            RefResolutionError: with the reason, `not-found` when there is no such file.
        """
        url = self._address_of(name)
        if self.is_read_only:
            most_bytes = self._limits.file_bytes
            download = Download(url, url, self._limits, most_bytes=most_bytes, on_bytes=_report_nothing)
            fetched = await download(target, None)
        else:
            fetched = await BackendDownload(url, url, self._limits, on_bytes=_report_nothing)(target, None)
        assert fetched is not None  # nothing was said to be current
        return fetched

    async def read(self, name: str) -> bytes:
        """Return what the small file of a name holds.

        Raises:
            RefResolutionError: as `fetch`.
        """
        with tempfile.TemporaryDirectory() as directory:
            target = Path(directory, "file")
            await self.fetch(name, target)
            return await in_thread(lambda stop: target.read_bytes())

    async def write(self, name: str, write: Write) -> None:
        """Write a file under a name; who fetches it meanwhile gets the whole of it, or what was there before.

        Raises:
            RefResolutionError: it cannot be written, with the reason.
        """
        url = self._address_of(name)
        if self.is_read_only:
            raise RefResolutionError(f"{self} can only be read", url, "auth", hint="write to the place that it serves")
        await in_thread(lambda stop: self._write(url, write, stop))

    def _write(self, url: str, write: Write, stop: Stop) -> None:
        with reported_failures("write", url, url):
            filesystem, path = open_backend(find_backend(url, url), url)
            unfinished = f"{path}.{unique()}.part"
            filesystem.makedirs(filesystem._parent(path), exist_ok=True)
            try:
                with filesystem.open(unfinished, "wb") as file:
                    write(file, stop)
                filesystem.mv(unfinished, path)
            except BaseException:
                if filesystem.exists(unfinished):
                    filesystem.rm_file(unfinished)
                raise

    def _address_of(self, name: str) -> str:
        if self._offline and self._scheme not in _NEAR:
            raise RefResolutionError(f"{self} cannot be reached: offline", self._url, "offline")
        return f"{self._url}/{name}"


def _report_nothing(size: int, total: int | None) -> None:
    """Take note of how far a download is."""
