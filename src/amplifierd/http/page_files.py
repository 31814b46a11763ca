"""The files of the page, as the browser gets them: with a tag made of their contents, and compressed."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

SHELL = "index.html"
"""Shows whatever the address says; the page reads the address itself."""

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""What is shown of the directory: nothing else in it is a file of the page."""

_PACKED = frozenset({".css", ".html", ".js", ".json", ".svg"})
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_LONGEST = 200


@dataclass(frozen=True)
class PageFile:
    """A file, and the same compressed where that helps. `tag` changes with its contents."""

    media_type: str
    content: bytes
    packed: bytes | None
    tag: str


class PageFiles:
    """The files below one directory. One that changed is read again, so that it can be worked on while it is served."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._read: dict[Path, tuple[tuple[int, int], PageFile]] = {}

    def find(self, path: str) -> PageFile:
        """Return the file at a path, the shell where there is none: then the path is one of the page's own."""
        file = self._locate(path)
        return self._load(file if file is not None else self._directory / SHELL)

    def _locate(self, path: str) -> Path | None:
        """Return the file of the page that a path names; a path is taken apart, so it leads nowhere else."""
        parts = path.split("/")
        if len(path) > _LONGEST or not all(_PART.fullmatch(part) for part in parts):
            return None
        file = self._directory.joinpath(*parts).resolve()
        is_shown = file.suffix in TYPES and file.is_relative_to(self._directory) and file.is_file()
        return file if is_shown else None

    def _load(self, file: Path) -> PageFile:
        status = file.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._read.get(file)
        if known is None or known[0] != stamp:
            known = self._read[file] = (stamp, _page_file(file))
        return known[1]


def _page_file(file: Path) -> PageFile:
    content = file.read_bytes()
    packed = gzip.compress(content, mtime=0) if file.suffix in _PACKED else b""
    return PageFile(
        media_type=TYPES[file.suffix],
        content=content,
        packed=packed if 0 < len(packed) < len(content) else None,
        tag=hashlib.sha256(content).hexdigest()[:32],
    )
