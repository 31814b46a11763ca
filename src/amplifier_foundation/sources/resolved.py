"""What the source layer answers, what it reports on the way, and the limits it keeps."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from amplifier_core.boundary import Boundary

from .hashing import hash_content

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
