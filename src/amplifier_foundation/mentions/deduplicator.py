"""One copy of each content, however many names it has."""

import hashlib
from pathlib import Path

from .models import ContextFile


class ContentDeduplicator:
    """Collects context files; the same content is kept once, with all its paths."""

    def __init__(self) -> None:
        self._files: dict[str, ContextFile] = {}

    def add_file(self, path: Path, content: str) -> bool:
        """Add a file and say whether its content is new."""
        key = _hash(content)
        resolved = path.resolve()
        known = self._files.get(key)
        if known is None:
            self._files[key] = ContextFile(content, key, [resolved])
            return True
        if resolved not in known.paths:
            known.paths.append(resolved)
        return False

    def get_unique_files(self) -> list[ContextFile]:
        """Return the files in the order in which their contents were first added."""
        return list(self._files.values())

    def is_seen(self, content: str) -> bool:
        return _hash(content) in self._files

    def get_known_hashes(self) -> set[str]:
        return set(self._files)


def _hash(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
