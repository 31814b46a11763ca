"""Source references as text: the one place that takes them apart.

`split_uri` knows the grammar. `parse_uri` is the lenient view of it that existing callers expect and never fails;
`amplifier_foundation.sources.parse_reference` is the strict one, with a frozen type for each kind of reference.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from .home import get_amplifier_home

__all__ = [
    "ParsedURI",
    "ResolvedSource",
    "SplitURI",
    "cut_fragment",
    "get_amplifier_home",
    "named_path",
    "normalize_path",
    "parse_uri",
    "path_in_fragment",
    "split_uri",
]

_SUBDIRECTORY = "subdirectory="
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SCP_LIKE = re.compile(r"git\+([^/@:#]+@[^/@:#]+):(?!//)/?(.*)", re.DOTALL)


class SplitURI(NamedTuple):
    """The written parts of a reference; `ref`, `query` and `fragment` are None where nothing was written."""

    scheme: str
    host: str
    path: str
    ref: str | None = None
    query: str | None = None
    fragment: str | None = None


def split_uri(uri: str) -> SplitURI:
    """Take a reference apart without judging it. A name keeps the rest of its path in `path`."""
    if scp_like := _SCP_LIKE.fullmatch(uri):
        uri = f"git+ssh://{scp_like[1]}/{scp_like[2]}"
    if uri.startswith(("/", "./", "../")):
        return SplitURI("file", "", uri)
    if not (match := _SCHEME.fullmatch(uri)):
        return SplitURI("", "", uri)
    scheme, (location, fragment) = match[1].lower(), _cut(match[2], "#")
    if scheme in ("file", "zip+file"):
        return SplitURI(scheme, "", location, fragment=fragment)
    host, slash, path = location.partition("/")  # an "@" before this slash is a user name: git@host
    path = slash + path
    if _is_git(scheme):
        repository, at, ref = path.rpartition("@")
        return SplitURI(scheme, host, repository if at else path, ref=ref if at else None, fragment=fragment)
    if not slash:
        host, query = _cut(host, "?")
    else:
        path, query = _cut(path, "?")
    return SplitURI(scheme, host, path, query=query or None, fragment=fragment)


def path_in_fragment(fragment: str | None) -> str | None:
    """Return the path a fragment names: `subdirectory=a/b` and a bare `a/b` mean the same, other pairs mean none."""
    if fragment is None:
        return None
    for part in fragment.split("&"):
        if part.startswith(_SUBDIRECTORY):
            return unquote(part.removeprefix(_SUBDIRECTORY))
    return None if "=" in fragment else unquote(fragment)


def cut_fragment(uri: str) -> tuple[str, str | None]:
    """Return a reference without its fragment, and the path that the fragment names."""
    base, fragment = _cut(uri, "#")
    return base, path_in_fragment(fragment)


def named_path(uri: str) -> str:
    """Return the path after which a reference's content can be named: the one inside its source, else the source's."""
    base, inside = cut_fragment(uri)
    parts = split_uri(base)
    behind_ref = parts.ref if parts.ref and "/" in parts.ref else None  # the older form `<ref>/<path>`
    return (inside or behind_ref or parts.path).rstrip("/")


@dataclass
class ParsedURI:
    """A reference in parts. `ref` prints `main` for a git reference without one; resolution uses `written_ref`."""

    scheme: str
    host: str
    path: str
    ref: str
    subpath: str
    written_ref: str | None = field(default="", compare=False, kw_only=True)
    query: str = field(default="", compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.written_ref == "":
            self.written_ref = self.ref

    @property
    def is_git(self) -> bool:
        return _is_git(self.scheme)

    @property
    def is_file(self) -> bool:
        return self.scheme == "file" or (not self.scheme and "/" in self.path)

    @property
    def is_http(self) -> bool:
        return self.scheme in ("http", "https")

    @property
    def is_zip(self) -> bool:
        return self.scheme.startswith("zip+")

    @property
    def is_package(self) -> bool:
        return not self.scheme and "/" not in self.path


def parse_uri(uri: str) -> ParsedURI:
    """Take a reference apart; every text has an answer, and nothing is looked up."""
    parts = split_uri(uri)
    if not parts.scheme:
        name, _, rest = parts.path.partition("/")
        return ParsedURI("", "", name, "", rest, written_ref=None)
    subpath = path_in_fragment(parts.fragment) or ""
    ref = parts.ref or ("main" if _is_git(parts.scheme) else "")
    return ParsedURI(
        parts.scheme, parts.host, parts.path, ref, subpath, written_ref=parts.ref or None, query=parts.query or ""
    )


@dataclass
class ResolvedSource:
    """Where a source is on this machine: what was asked for, and the tree it belongs to."""

    active_path: Path
    source_root: Path

    @property
    def is_subdirectory(self) -> bool:
        return self.active_path != self.source_root


def normalize_path(path: str | Path, relative_to: Path | None = None) -> Path:
    """Return an absolute path with `~` expanded; a relative one counts from `relative_to` or the working directory."""
    expanded = Path(path).expanduser()
    if expanded.is_absolute() or relative_to is None:
        return expanded.resolve()
    return (relative_to / expanded).resolve()


def _cut(text: str, separator: str) -> tuple[str, str | None]:
    before, found, after = text.partition(separator)
    return before, after if found else None


def _is_git(scheme: str) -> bool:
    return scheme == "git" or scheme.startswith("git+")
