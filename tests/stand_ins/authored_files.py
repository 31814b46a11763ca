"""What people wrote, as it is on disk: for the programs in which tests let something crash that must not touch it."""

from pathlib import Path

Snapshot = dict[str, tuple[int, int, bytes]]


def snapshot(*roots: Path) -> Snapshot:
    """Return every file and directory below some directories, with its mode, time and content."""
    found: Snapshot = {}
    for path in sorted(path for root in roots for path in root.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found
