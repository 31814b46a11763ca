"""The files of the page, as the browser gets them: with a tag made of their contents, and compressed.

The shell names the other files below `files/<version>/`. The version is made of all their contents, so what a browser
got there it never has to ask for again; a later page has another version.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

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
_ADDRESS = b'"/app/'
_VERSIONED = re.compile(r"files/([0-9a-f]{16})/(.+)", re.DOTALL)
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_LONGEST = 200


@dataclass(frozen=True)
class PageFile:
    """A file, and the same compressed where that helps. `tag` changes with its contents; a lasting one never does."""

    media_type: str
    content: bytes
    packed: bytes | None
    tag: str
    is_lasting: bool = False


class PageFiles:
    """The files below one directory. One that changed is read again, so that it can be worked on while it is served."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._read: dict[Path, tuple[tuple[int, int], PageFile]] = {}
        self._version = self._latest = ""
        self._stamps: frozenset[tuple[str, int, int]] = frozenset()
        self._shell: PageFile | None = None

    def find(self, path: str) -> PageFile:
        """Return the file at a path, the shell where there is none: then the path is one of the page's own."""
        versioned = _VERSIONED.fullmatch(path)
        if versioned and not self._version:
            self._find_shell()
        file = self._locate(versioned[2] if versioned else path)
        if file is None or file.name == SHELL:
            return self._find_shell()
        return replace(self._load(file), is_lasting=versioned is not None and versioned[1] == self._version)

    def _find_shell(self) -> PageFile:
        version = self._current_version()
        if self._shell is None or version != self._version:
            content = (self._directory / SHELL).read_bytes()
            named = content.replace(_ADDRESS, _ADDRESS + f"files/{version}/".encode())
            self._version, self._shell = version, _page_file(Path(SHELL).suffix, named)
        return self._shell

    def _current_version(self) -> str:
        """Return the version of the files as they are now; as long as none has another stamp it is the one known."""
        stamps = frozenset(_stamps(str(self._directory)))
        if stamps != self._stamps:
            paths = sorted(path.relative_to(self._directory).as_posix() for path in self._directory.rglob("*"))
            files = [file for path in paths if (file := self._locate(path)) is not None]
            tags = "".join(self._load(file).tag for file in files)
            self._stamps, self._latest = stamps, hashlib.sha256(tags.encode()).hexdigest()[:16]
        return self._latest

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
            known = self._read[file] = (stamp, _page_file(file.suffix, file.read_bytes()))
        return known[1]


def _stamps(directory: str) -> Iterator[tuple[str, int, int]]:
    """Yield every file below a directory with what changes when it is written."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _stamps(entry.path)
            else:
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_mtime_ns, status.st_size


def _page_file(suffix: str, content: bytes) -> PageFile:
    packed = gzip.compress(content, mtime=0) if suffix in _PACKED else b""
    return PageFile(
        media_type=TYPES[suffix],
        content=content,
        packed=packed if 0 < len(packed) < len(content) else None,
        tag=hashlib.sha256(content).hexdigest()[:32],
    )


def documentation_page(document: Mapping[str, Any]) -> str:
    """Return the HTML page about an API."""
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<link rel="icon" href="/app/icon.svg" type="image/svg+xml"></head>\n<body>\n'
        f'<h1>{title}</h1>\n<p>The whole description, for programs: <a href="/openapi.json">openapi.json</a></p>\n'
        f"<table>\n<tr><th>Method</th><th>Path</th><th>What it does</th><th>Answers</th></tr>\n"
        f"{''.join(_rows(document))}</table>\n</body></html>\n"
    )


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            does = operation.get("description") or operation.get("summary", "")
            cells = (method.upper(), path, does, ", ".join(sorted(operation["responses"])))
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>\n"
