"""Where the files of a collection are on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from amplifier_foundation.sources import GitReference


@dataclass(frozen=True, slots=True)
class CollectionRoot:
    """A collection's files on this machine.

    `boundary` is the repository or source directory that relative references must stay in. `reference` is the source
    of a git collection as it was synced, `commit` what it meant then, `content_hash` what the files were.
    """

    path: Path
    boundary: Path
    commit: str | None = None
    reference: GitReference | None = None
    content_hash: str | None = None
