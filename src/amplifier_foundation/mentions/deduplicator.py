"""One copy of each content, however many names it has."""

import hashlib
import os
from pathlib import Path

from .models import ContextFile


class ContentDeduplicator:
    """Collects context files; the same content is kept once, with all its paths."""

    def __init__(self) -> None:
        self._files: dict[str, ContextFile] = {}
        self._places: dict[Path, Path] = {}
        self._directories: dict[str, str] = {}

    def add_file(self, path: Path, content: str) -> bool:
        """Add a file and say whether its content is new."""
        key = hash_content(content)
        place = self._places[path] = self._resolved(path)
        known = self._files.get(key)
        if known is None:
            self._files[key] = ContextFile(content, key, [place])
            return True
        if place not in known.paths:
            known.paths.append(place)
        return False

    def place_of(self, path: Path) -> Path:
        """Return a path as it stands in the files: without links and dots."""
        return self._places.get(path) or self._resolved(path)

    def get_unique_files(self) -> list[ContextFile]:
        """Return the files in the order in which their contents were first added."""
        return list(self._files.values())

    def is_seen(self, content: str) -> bool:
        return hash_content(content) in self._files

    def _resolved(self, path: Path) -> Path:
        """Resolve a path; the directory of many files is looked at once."""
        directory, name = os.path.split(path)
        known = self._directories.get(directory)
        if known is None:
            known = self._directories[directory] = os.path.realpath(directory)
        place = os.path.join(known, name)  # noqa: PTH118
        return Path(os.path.realpath(place) if name in ("", ".", "..") or os.path.islink(place) else place)  # noqa: PTH114

    def get_known_hashes(self) -> set[str]:
        return set(self._files)


def hash_content(content: str) -> str:
    """Return what tells contents apart: SHA-256, as hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()
