"""What the source layer answers, what it reports on the way, and the limits it keeps."""

import fnmatch
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from amplifier_core.boundary import Boundary
from amplifier_foundation.exceptions import RefResolutionError

from .store import remove

logger = logging.getLogger(__name__)

SourceKind = Literal["git", "fsspec", "local", "installed"]
Phase = Literal["waiting", "asking", "fetching", "ready", "failed"]

UNPINNED = "unpinned-ref"
OFFLINE_STALE = "offline-stale"

_MIB = 1024 * 1024


@dataclass(frozen=True)
class ResolvedRef:
    """Where the content of a reference is on this machine, and which version of it.

    `root` is the tree that `path` belongs to. `content_hash` is read from the files when it is first asked for, unless
    the cache knows it; ask off the event loop where that matters.
    """

    ref: str
    kind: SourceKind
    path: Path
    root: Path
    resolved_at: str
    url: str | None = None
    rev: str | None = None
    commit: str | None = None
    subpath: str | None = None
    mutable: bool = True
    from_cache: bool = False
    stale: bool = False
    warnings: tuple[str, ...] = ()
    known_hash: str | None = None
    root_hash: str | None = None
    """The hash of all of `root`, as it was when it was fetched; None when that is not known."""

    @cached_property
    def content_hash(self) -> str:
        """`sha256:<hex>` of the file, or of the tree as `hash_content` defines it."""
        return self.known_hash or hash_content(self.path, root=self.root)


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One step of long work: `what` is worked on (here always `source`), which one, and how far it is."""

    what: str
    ref: str
    phase: Phase
    bytes: int | None = None
    total_bytes: int | None = None
    detail: str = ""


Progress = Callable[[ProgressEvent], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a source may take: bytes, entries, seconds, attempts and parallel work."""

    file_bytes: int = 50 * _MIB
    tree_bytes: int = 500 * _MIB
    tree_entries: int = 100_000
    redirects: int = 5
    connect_timeout_s: float = 30.0
    ask_timeout_s: float = 10.0
    fetch_timeout_s: float | None = None  # None: AMPLIFIER_GIT_CLONE_TIMEOUT_S, else 300
    lock_timeout_s: float = 1800.0
    retry_delays_s: tuple[float, ...] = (1.0, 2.0)
    parallel_git: int = 8
    parallel_downloads: int = 8


def report(progress: Progress | None, event: ProgressEvent) -> None:
    """Report progress; a callback that fails does not stop the work."""
    if progress is not None:
        with Boundary(logger, "a progress callback failed on %r: %s", event, level=logging.ERROR):
            progress(event)


# Content hashes: the same bytes under the same names have the same hash on every machine.


IGNORED_NAMES = frozenset({".git", "__pycache__", ".venv", "node_modules", ".pytest_cache", ".DS_Store"})
IGNORED_PATTERNS = ("*.pyc", "*.egg-info")

_CACHE, _COMPILED = "__pycache__", ".pyc"
_HEADER, _BY_TIME = 8, 0  # of a file with bytecode: a magic number, and flags
_CHUNK = 1024 * 1024


def hash_content(path: Path, *, root: Path | None = None) -> str:
    """Return `sha256:<hex>` of a file's bytes, or of a tree.

    A tree's hash is taken over the sorted lines `relpath NUL exec-bit NUL sha256(file)`, without what builds and tools
    leave behind (`.git`, `__pycache__`, `.venv`, …). A link to a file counts with the file's bytes, a link to a
    directory with the text of the link.

    Raises:
        RefResolutionError: it does not exist, or a link in it leaves `root` (the tree itself by default).
    """
    if path.is_file():
        return f"sha256:{_hash_file(path)}"
    if not path.is_dir():
        raise RefResolutionError(f"{path} does not exist", str(path), "not-found")
    boundary = Path(os.path.realpath(root or path))
    lines = sorted(_line(path, file, boundary) for file in walk(path))
    return f"sha256:{hashlib.sha256(b''.join(lines)).hexdigest()}"


def check_links(tree: Path, ref: str) -> None:
    """Raise `RefResolutionError` (`unsafe-path`) if a symbolic link in `tree` leads out of it."""
    boundary = Path(os.path.realpath(tree))
    for directory, subdirectories, files in os.walk(tree):
        for name in (*subdirectories, *files):
            path = Path(directory, name)
            if path.is_symlink():
                _check_link(path, tree, boundary, ref)


def is_bytecode(name: str) -> bool:
    """True if a path in a source is, or is inside, what Python runs in place of the source that people read."""
    return any(part == _CACHE or part.endswith(_COMPILED) for part in name.split("/"))


def is_planted_bytecode(file: Path) -> bool:
    """True for bytecode that is not compared with the time of its source: Python makes none of that kind by itself.

    It runs whatever the source says, or with a hash of the source, which anyone can compute, in front of other code.
    """
    with file.open("rb") as opened:
        header = opened.read(_HEADER)
    return len(header) == _HEADER and int.from_bytes(header[4:], "little") != _BY_TIME


def remove_bytecode(tree: Path) -> None:
    """Remove all bytecode from a tree that was just fetched."""
    for directory, subdirectories, files in os.walk(tree):
        for name in (*subdirectories, *files):
            if is_bytecode(name):
                remove(Path(directory, name))
        subdirectories[:] = [name for name in subdirectories if not is_bytecode(name)]


def walk(tree: Path) -> Iterator[Path]:
    """Yield the files of a tree, and the links to directories, without what is ignored."""
    for directory, subdirectories, files in os.walk(tree):
        linked = [name for name in subdirectories if Path(directory, name).is_symlink()]
        subdirectories[:] = [name for name in subdirectories if name not in linked and not _is_ignored(name)]
        yield from (Path(directory, name) for name in (*files, *linked) if not _is_ignored(name))


def _is_ignored(name: str) -> bool:
    return name in IGNORED_NAMES or any(fnmatch.fnmatchcase(name, pattern) for pattern in IGNORED_PATTERNS)


def _line(tree: Path, file: Path, boundary: Path) -> bytes:
    if file.is_symlink():
        _check_link(file, tree, boundary, str(tree))
    executable, digest = b"0", ""
    if file.is_file():
        executable = b"1" if file.stat().st_mode & 0o100 else b"0"
        digest = _hash_file(file)
    elif file.is_symlink():
        digest = hashlib.sha256(os.fsencode(file.readlink())).hexdigest()
    return os.fsencode(file.relative_to(tree).as_posix()) + b"\0" + executable + b"\0" + digest.encode() + b"\n"


def _check_link(link: Path, tree: Path, boundary: Path, ref: str) -> None:
    if not Path(os.path.realpath(link)).is_relative_to(boundary):
        raise RefResolutionError(
            f"the link {link.relative_to(tree).as_posix()!r} leads out of its source, to {str(link.readlink())!r}",
            ref,
            "unsafe-path",
            hint="replace the link by the file it should be",
        )


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
